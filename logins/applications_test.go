package logins

import (
	"fmt"
	"testing"
	"time"

	"fairshare"
)

// The logins of usual applications are known by what an access log holds of them: the target, the status and the
// length. Guesses fail there after a few, and logins of people never do.
func TestLoginsOfUsualApplicationsInLogs(t *testing.T) {
	page := Answer{Status: 200, Bytes: 6200}
	moved, other := Answer{Status: 302, Bytes: 0}, Answer{Status: 303, Bytes: 0}
	denied := Answer{Status: 401, Bytes: 80}
	for _, c := range []struct {
		application, target string
		failed, succeeded   Answer
		tells               bool // a log tells which attempts fail
	}{
		{"WordPress", "/wp-login.php", page, moved, true},
		{"WooCommerce", "/my-account/", page, moved, true},
		{"Joomla, administrators", "/administrator/index.php", other, other, false},
		{"Joomla, users", "/index.php?option=com_users&task=user.login", page, other, true},
		{"Joomla, users, readable URLs", "/component/users/?task=user.login", page, other, true},
		{"Drupal", "/user/login", page, other, true},
		{"Drupal in a folder, with a destination", "/site/user/login?destination=node/4", page, other, true},
		{"Drupal without readable URLs", "/?q=user/login", page, moved, true},
		{"phpBB", "/forum/ucp.php?mode=login&sid=1", page, moved, true},
		{"SMF", "/index.php?action=login2", page, moved, true},
		{"MyBB", "/member.php?action=do_login", page, moved, true},
		{"XenForo", "/login/login", page, other, true},
		{"XenForo without readable URLs", "/index.php?login/login", page, other, true},
		{"vBulletin", "/login.php?do=login", page, moved, true},
		{"Discourse", "/session", denied, Answer{Status: 200, Bytes: 900}, true},
		{"MediaWiki", "/index.php?title=Special:UserLogin&returnto=Main_Page", page, moved, true},
		{"MediaWiki, encoded", "/w/index.php?title=Special%3AUserLogin", page, moved, true},
		{"MediaWiki, readable URLs", "/wiki/Special:UserLogin", page, moved, true},
		{"MediaWiki in German", "/wiki/Spezial:Anmelden", page, moved, true},
		{"Magento", "/customer/account/loginPost/", moved, moved, false},
		{"PrestaShop", "/index.php?controller=authentication&back=my-account", page, moved, true},
		{"OpenCart", "/index.php?route=account/login", page, moved, true},
		{"OpenCart, administrators", "/admin/index.php?route=common/login", page, moved, true},
		{"Nextcloud", "/index.php/login", page, other, true},
		{"cPanel", "/login/?login_only=1", denied, Answer{Status: 200, Bytes: 180}, true},
		{"Plesk", "/login_up.php", page, other, true},
		{"DirectAdmin", "/CMD_LOGIN", page, moved, true},
		{"Webmin", "/session_login.cgi", denied, moved, true},
		{"Roundcube", "/?_task=login", denied, moved, true},
		{"phpMyAdmin", "/phpmyadmin/index.php", page, moved, true},
		{"Grafana", "/login", denied, Answer{Status: 200, Bytes: 41}, true},
		{"GitLab", "/users/sign_in", Answer{Status: 422, Bytes: 9000}, moved, true},
		{"Gitea", "/user/login", page, other, true},
		{"Jenkins", "/j_spring_security_check", moved, moved, false},
		{"Jira", "/rest/auth/1/session", denied, Answer{Status: 200, Bytes: 250}, true},
		{"Confluence", "/dologin.action", page, moved, true},
		{"Bitbucket", "/j_atl_security_check", page, moved, true},
		{"Exchange", "/owa/auth.owa", moved, moved, false},
		{"ASP.NET", "/Account/Login.aspx?ReturnUrl=%2f", page, moved, true},
		{"ASP", "/admin_login.asp", page, moved, true},
		{"Django, administrators", "/admin/login/?next=/admin/", page, moved, true},
		{"Django REST framework", "/api-token-auth/", Answer{Status: 400, Bytes: 68},
			Answer{Status: 200, Bytes: 52}, true},
		{"CouchDB", "/_session", denied, Answer{Status: 200, Bytes: 40}, true},
		{"Auth.js", "/api/auth/callback/credentials", denied, Answer{Status: 200, Bytes: 30}, true},
		{"Keycloak", "/auth/realms/x/login-actions/authenticate?execution=1", page, moved, true},
		{"OAuth", "/oauth/token", Answer{Status: 400, Bytes: 100}, Answer{Status: 200, Bytes: 1800}, true},
		{"OpenWrt", "/cgi-bin/luci", Answer{Status: 403, Bytes: 2000}, moved, true},
		{"a shop in French", "/connexion", page, moved, true},
		{"a portal in German", "/portal/anmelden", page, moved, true},
		{"an own name", "/memberLogin.do", page, moved, true},
		{"another own name", "/user_login_form.php", page, moved, true},
	} {
		w := New(Options{})
		for i := range 3 { // people log in
			at, addr := begin.Add(time.Duration(i)*time.Hour), fmt.Sprintf("198.51.%d.1", i)
			kind, _, got := send(w, at, addr, "POST", c.target, c.succeeded)
			if kind != fairshare.LoginAttempt || got == Failed {
				t.Errorf("%s: login %d of a person: %v, result %d", c.application, i, kind, got)
			}
		}
		failed, passed := 0, 0
		for i := range 100 {
			at := begin.Add(24*time.Hour + time.Duration(i)*time.Minute)
			_, excess, got := send(w, at, fmt.Sprintf("192.0.%d.1", i), "POST", c.target, c.failed)
			if !excess {
				passed++
			}
			if got == Failed {
				failed++
			}
		}
		if c.tells && passed > 10 || !c.tells && failed > 0 {
			t.Errorf("%s: %d of 100 guesses pass, %d fail", c.application, passed, failed)
		}
		if _, excess, got := send(w, begin.Add(27*time.Hour), "198.51.1.1", "POST", c.target, c.succeeded); excess ||
			got == Failed {
			t.Errorf("%s: a person is refused during the attack: excess %v, result %d", c.application, excess, got)
		}
	}
}

// POST requests that are not logins stay what they are, although their names are close.
func TestNamesThatAreNotLogins(t *testing.T) {
	for _, target := range []string{"/loginstatus", "/catalog/online", "/blog/on-login-pages", "/insignia", "/blogs",
		"/api/login-history", "/", "/?s=login", "/index.php?action=logout", "/wiki/Help:Contents", "/cart",
		"/wp-admin/admin-ajax.php?action=login2", "/analytics/signin-events", "/login/callback",
		"/login/saml2/sso", "/signin-oidc", "/saml/acs"} {
		if kind, _, _ := send(New(Options{}), begin, "192.0.2.1", "POST", target, Answer{Status: 403}); kind !=
			fairshare.NoAttempt {
			t.Errorf("%s: %v", target, kind)
		}
	}
}

// An API whose answers have one length is not guessed at.
func TestTokensOfOneLengthAreNotFailures(t *testing.T) {
	w := New(Options{})
	for i := range 1000 {
		kind, excess, got := send(w, begin.Add(time.Duration(i)*time.Second), fmt.Sprintf("10.1.%d.%d", i/250, i%250),
			"POST", "/api/login", Answer{Status: 200, Bytes: 1400})
		if kind != fairshare.LoginAttempt || excess || got == Failed {
			t.Fatalf("login %d: %v, excess %v, result %d", i, kind, excess, got)
		}
	}
}
