package fairshare

import "fmt"

// An Attempt says whether a request tries to log in, or sends a form that unknown clients
// may send. Package logins finds out.
type Attempt uint8

const (
	NoAttempt      Attempt = iota // neither; the zero Attempt
	LoginAttempt                  // it sends a password or another proof of who the client is
	CommentAttempt                // it sends a comment or a post
	// it has an Authorization header with Basic or Bearer credentials
	CredentialsAttempt
)

// String returns the word of [Match.Attempt].
func (a Attempt) String() string {
	switch a {
	case LoginAttempt:
		return "login"
	case CommentAttempt:
		return "comment"
	case CredentialsAttempt:
		return "credentials"
	}
	return "none"
}

// Logins knows clients that have logged in. It is safe for concurrent use, and returns
// at once.
type Logins interface {
	// HasLoggedIn reports whether the site let the client of a request log in before:
	// the visitor of a signed cookie, or the address. It changes nothing.
	HasLoggedIn(*Request) bool
}

// An attemptSet is a compiled Match.Attempt.
type attemptSet uint8

const (
	loginAttempt attemptSet = 1 << iota
	commentAttempt
	credentialsAttempt
	excessAttempt
	knownAttempt
)

func newAttemptSet(words []string) (set attemptSet, err error) {
	for _, word := range words {
		switch word {
		case "login":
			set |= loginAttempt
		case "comment":
			set |= commentAttempt
		case "credentials":
			set |= credentialsAttempt
		case "excess":
			set |= excessAttempt
		case "known":
			set |= knownAttempt
		default:
			return 0, fmt.Errorf("attempt: %q is not one of login, comment, credentials, excess, known", word)
		}
	}
	return set, nil
}

func (set attemptSet) holds(req *Request) bool {
	switch {
	case set&loginAttempt != 0 && req.Attempt == LoginAttempt,
		set&commentAttempt != 0 && req.Attempt == CommentAttempt,
		set&credentialsAttempt != 0 && req.Attempt == CredentialsAttempt,
		set&excessAttempt != 0 && req.Excess:
		return true
	}
	return set&knownAttempt != 0 && req.Logins != nil && req.Logins.HasLoggedIn(req)
}

// describeAttempt describes what is known of an attempt.
func describeAttempt(req *Request) string {
	text := "no attempt to log in or to send a form"
	switch req.Attempt {
	case LoginAttempt:
		text = "attempt login"
	case CommentAttempt:
		text = "attempt comment"
	case CredentialsAttempt:
		text = "attempt credentials"
	}
	if req.Excess {
		text += ", in excess of what unknown clients get there"
	}
	if req.Logins != nil && req.Logins.HasLoggedIn(req) {
		text += ", of a known client"
	}
	return text + ": that"
}
