<?php
// ?kb=… kilobytes, and headers of ?head=… bytes more.
header('Content-Type: application/octet-stream');
if ($n = (int) ($_GET['head'] ?? 0)) {
	header('X-Large: ' . str_repeat('h', $n));
}
$piece = str_repeat('0123456789abcdef', 64);
for ($i = 0; $i < (int) ($_GET['kb'] ?? 1); $i++) {
	echo $piece;
}
