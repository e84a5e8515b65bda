<?php
// The front controller: every address that is no file comes here.
require __DIR__ . '/site.php';

$path = parse_url($_SERVER['REQUEST_URI'], PHP_URL_PATH);
switch (true) {
case $path === '/':
	page('Home', function () {
		for ($i = 0; $i < 60; $i++) {
			[$kind, $tag] = [['css', '<link rel="stylesheet" href="%s">'], ['js', '<script src="%s"></script>'], ['png', '<img src="%s" alt="">']][$i % 3];
			printf("$tag\n", "/wp-content/themes/plain/a$i.$kind?ver=6.4");
		}
		echo '<p><a href="/2026/11/hello/">Hello</a>';
	});
	break;
case $path === '/search/': // takes ?ms=… milliseconds
	usleep(1000 * (int) ($_GET['ms'] ?? 0));
	page('Search', fn () => print '<p>Nothing found.');
	break;
case $path === '/feed/':
	header('Content-Type: application/rss+xml; charset=UTF-8');
	echo '<?xml version="1.0"?><rss version="2.0"><channel><title>Shop</title></channel></rss>';
	break;
case preg_match('#^/2026/11/([a-z]+)/$#', $path, $m) === 1:
	page(ucfirst($m[1]), function () {
		echo '<form action="/wp-comments-post.php" method="post"><textarea name="comment"></textarea></form>';
	});
	break;
case preg_match('#^/2026/11/([a-z]+)$#', $path) === 1:
	redirect("$path/", 301);
	break;
default:
	http_response_code(404);
	page('Not found', function () {});
}
