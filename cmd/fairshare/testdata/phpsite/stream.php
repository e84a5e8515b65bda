<?php
// Sends one piece, waits for the file "go" beside it, and sends another. As
// an event stream with ?events, else as a page that flushes.
header('X-Accel-Buffering: no');
header(isset($_GET['events']) ? 'Content-Type: text/event-stream' : 'Content-Type: text/plain');
echo "data: first\n\n";
ob_get_level() && ob_flush();
flush();
for ($i = 0; $i < 2000 && !file_exists(__DIR__ . '/go'); $i++) {
	usleep(10000);
	clearstatcache();
}
echo "data: second\n\n";
