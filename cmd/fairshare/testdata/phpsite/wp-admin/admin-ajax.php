<?php
require dirname(__DIR__) . '/site.php';

member();
header('Content-Type: application/json');
echo json_encode(['success' => true, 'action' => $_REQUEST['action'] ?? '']);
