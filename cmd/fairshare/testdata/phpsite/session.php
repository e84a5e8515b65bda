<?php
// A page that opens a session for whoever brings none, as most PHP sites do,
// and counts the pages that were asked for in it.
session_name('PHPSESSID');
session_start();
if ($_SERVER['REQUEST_METHOD'] === 'POST') {
	session_regenerate_id(true);
	$_SESSION['person'] = $_POST['person'];
}
$_SESSION['pages'] = ($_SESSION['pages'] ?? 0) + 1;
header('Content-Type: application/json');
echo json_encode([
	'session' => session_id(),
	'pages' => $_SESSION['pages'],
	'person' => $_SESSION['person'] ?? '',
	'client' => $_SERVER['HTTP_FAIRSHARE_CLIENT'] ?? '',
	'bot' => $_SERVER['HTTP_FAIRSHARE_BOT'] ?? '',
	'state' => $_SERVER['HTTP_FAIRSHARE_BOT_STATE'] ?? '',
	'ttl' => $_SERVER['HTTP_FAIRSHARE_SESSION_TTL'] ?? '',
]);
