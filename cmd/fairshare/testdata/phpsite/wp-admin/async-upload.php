<?php
require dirname(__DIR__) . '/site.php';

member();
$file = $_FILES['async-upload'] ?? null;
header('Content-Type: application/json');
if (!$file || $file['error'] !== UPLOAD_ERR_OK) {
	http_response_code(400);
	echo json_encode(['error' => $file['error'] ?? 'none']);
	exit;
}
echo json_encode(['name' => $file['name'], 'size' => $file['size'], 'sha256' => hash_file('sha256', $file['tmp_name'])]);
