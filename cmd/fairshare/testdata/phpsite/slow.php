<?php
// Takes ?ms=… milliseconds. Counts how many of its kind run at once, and keeps
// the most there ever were in the file "most" beside it; "runs" are all.
function count_in(int $change): void {
	$f = fopen(__DIR__ . '/running', 'c+');
	flock($f, LOCK_EX);
	[$now, $most, $runs] = array_map('intval', explode(' ', stream_get_contents($f) ?: '0 0 0'));
	$now += $change;
	$most = max($most, $now);
	$runs += $change > 0 ? 1 : 0;
	rewind($f);
	ftruncate($f, 0);
	fwrite($f, "$now $most $runs");
	fclose($f);
}

ignore_user_abort(true);
count_in(1);
register_shutdown_function(fn () => count_in(-1));
usleep(1000 * (int) ($_GET['ms'] ?? 1000));
echo 'done';
