<?php
// Spends ?ms=N of CPU time. Reports the time that it spent, and ?cost=N as the cost, to
// the proxy and as a line of the file COSTS_FILE.
function used(): int
{
    $u = getrusage();
    return 1_000_000 * ($u['ru_utime.tv_sec'] + $u['ru_stime.tv_sec']) + $u['ru_utime.tv_usec'] + $u['ru_stime.tv_usec'];
}

$began = used();
do {
    for ($n = 0, $sum = ''; $n < 100; $n++) {
        $sum = md5($sum . $n);
    }
} while (used() < $began + 1000 * (float) $_GET['ms']);
$took = used() - $began;
header('Content-Type: text/plain');
header(sprintf('Server-Timing: db;dur=1;desc="a, b; cpu;dur=9", cpu;dur=%.3f', $took / 1000));
header('X-Cost: ' . (int) $_GET['cost']);
file_put_contents(getenv('COSTS_FILE'), "{$_SERVER['HTTP_X_CLIENT']} $took " . (int) $_GET['cost'] . "\n", FILE_APPEND | LOCK_EX);
echo $sum;
