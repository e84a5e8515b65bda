<?php
// A site of PHP, in php-fpm or by php -S: ?burn=MS&wait=MS spends CPU time, then
// waits. The header Used of each answer is the CPU time from getrusage, in µs.
function used(): float
{
    $u = getrusage();
    return $u['ru_utime.tv_sec'] + $u['ru_stime.tv_sec'] + ($u['ru_utime.tv_usec'] + $u['ru_stime.tv_usec']) / 1e6;
}

$began = used();
$until = $began + (float) ($_GET['burn'] ?? 0) / 1000;
$rows = [];
while (used() < $until) {
    for ($rows = [], $n = 0; $n < 200; $n++) {
        $rows[] = md5((string) ($n * 7919 % 1009));
    }
    sort($rows);
}
usleep((int) (1000 * (float) ($_GET['wait'] ?? 0)));
$took = used() - $began;
header('Used: ' . round($took * 1e6));
header(sprintf('Server-Timing: cpu;dur=%.3f', $took * 1000));
echo implode("\n", array_slice($rows, 0, 20)), "\n";
