<?php
require __DIR__ . '/site.php';

session_start();
if ($_SERVER['REQUEST_METHOD'] === 'POST' && ($_POST['log'] ?? '') === 'anna' && ($_POST['pwd'] ?? '') === 'correct horse') {
	session_regenerate_id(true);
	$_SESSION['name'] = 'anna';
	setcookie('wordpress_logged_in_1', 'anna|' . bin2hex(random_bytes(8)), ['path' => '/', 'httponly' => true, 'secure' => !empty($_SERVER['HTTPS'])]);
	redirect('/wp-admin/');
	exit;
}
setcookie('wordpress_test_cookie', 'WP+Cookie+check', ['path' => '/']);
page('Log in', function () {
	if ($_SERVER['REQUEST_METHOD'] === 'POST') {
		echo '<p>Wrong name or password.'; // status 200, as WordPress has it
	}
	echo '<form method="post"><input name="log"><input name="pwd" type="password"></form>';
});
