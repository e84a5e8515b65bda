<?php
require __DIR__ . '/site.php';

if ($_SERVER['REQUEST_METHOD'] !== 'POST' || ($_POST['comment'] ?? '') === '') {
	http_response_code(400);
	page('Please type a comment', function () {});
	exit;
}
redirect('/2026/11/hello/#comment-1');
