<?php
// What all pages share. Redirects name scheme and host, as WordPress's do.

function site(): string {
	return (empty($_SERVER['HTTPS']) ? 'http' : 'https') . '://' . $_SERVER['HTTP_HOST'];
}

function redirect(string $path, int $status = 302): void {
	header('Location: ' . site() . $path, true, $status);
}

function page(string $title, callable $body): void {
	header('Content-Type: text/html; charset=UTF-8');
	echo "<!doctype html><title>$title</title><h1>$title</h1>\n";
	$body();
}

// Whoever has no session is sent to the login.
function member(): void {
	session_start();
	if (empty($_SESSION['name'])) {
		redirect('/wp-login.php?redirect_to=' . urlencode($_SERVER['REQUEST_URI']));
		exit;
	}
}
