<?php
// Tells what PHP was told about the request.
header('Content-Type: application/json');
echo json_encode(['server' => $_SERVER, 'headers' => getallheaders(), 'body' => strlen(file_get_contents('php://input'))]);
