<?php
require dirname(__DIR__) . '/site.php';

member();
page('Dashboard', function () {
	echo '<p>Welcome, ' . htmlspecialchars($_SESSION['name']);
});
