<?php
// Installs WordPress with posts, comments and users, the same for each seed, and prints the password of
// the app of user "app" as JSON. It runs once, with php-cli, in the folder of WordPress.
define('WP_INSTALLING', true);
$_SERVER['HTTP_HOST'] = 'site.example';
$_SERVER['SERVER_PROTOCOL'] = 'HTTP/1.1';
$_SERVER['REQUEST_METHOD'] = 'GET';
require getcwd() . '/wp-load.php';
require ABSPATH . 'wp-admin/includes/upgrade.php';
mt_srand((int)$argv[1]);

wp_install('The Range', 'admin', 'admin@site.example', true, '', 'admin password 1');
foreach ([
    'siteurl' => 'http://site.example', 'home' => 'http://site.example',
    'permalink_structure' => '/%year%/%postname%/', 'show_avatars' => 0, 'posts_per_page' => 10,
    'comments_notify' => 0, 'moderation_notify' => 0, 'comment_registration' => 0,
    'template' => 'twentytwentyone', 'stylesheet' => 'twentytwentyone',
] as $name => $value) update_option($name, $value);

$words = explode(' ', 'river market window garden paper winter bridge letter island morning kitchen silver road forest ' .
    'music summer harbour station village mountain coffee library evening ticket picture weather journey school doctor ' .
    'train engine machine number question answer colour blue green yellow simple quiet early late open closed warm cold');
function sentence($words) {
    $picked = [];
    for ($n = mt_rand(6, 16); $n > 0; $n--) $picked[] = $words[mt_rand(0, count($words) - 1)];
    return ucfirst(implode(' ', $picked)) . '.';
}
function paragraph($words) {
    $lines = [];
    for ($n = mt_rand(3, 7); $n > 0; $n--) $lines[] = sentence($words);
    return "<!-- wp:paragraph -->\n<p>" . implode(' ', $lines) . "</p>\n<!-- /wp:paragraph -->\n";
}

$users = ['editor1' => 'editor', 'editor2' => 'editor', 'office1' => 'author', 'office2' => 'author', 'office3' => 'author', 'app' => 'editor'];
$ids = [];
foreach ($users as $name => $role) {
    $ids[$name] = wp_insert_user(['user_login' => $name, 'user_pass' => "password of $name", 'role' => $role,
        'user_email' => "$name@site.example", 'display_name' => ucfirst($name)]);
}
$categories = [];
foreach (['News', 'Travel', 'Kitchen', 'Garden', 'Music'] as $name) $categories[] = wp_create_category($name);

wp_defer_term_counting(true);
wp_defer_comment_counting(true);
for ($i = 1; $i <= 200; $i++) {
    $body = '';
    for ($n = mt_rand(4, 12); $n > 0; $n--) $body .= paragraph($words);
    $id = wp_insert_post(['post_title' => "Post $i " . $words[mt_rand(0, count($words) - 1)], 'post_name' => "post-$i",
        'post_content' => $body, 'post_status' => 'publish', 'post_author' => $ids['editor' . mt_rand(1, 2)],
        'post_date' => sprintf('2025-%02d-%02d %02d:00:00', intdiv($i, 20) + 1, $i % 27 + 1, $i % 24),
        'post_category' => [$categories[mt_rand(0, 4)]], 'tags_input' => [$words[mt_rand(0, 9)]]]);
    for ($n = mt_rand(0, 4); $n > 0; $n--) {
        wp_insert_comment(['comment_post_ID' => $id, 'comment_author' => ucfirst($words[mt_rand(0, 20)]),
            'comment_author_email' => 'reader@mail.example', 'comment_content' => sentence($words), 'comment_approved' => 1]);
    }
}
foreach (['About', 'Contact', 'Imprint'] as $title) {
    wp_insert_post(['post_title' => $title, 'post_content' => paragraph($words), 'post_status' => 'publish', 'post_type' => 'page']);
}
wp_defer_term_counting(false);
wp_defer_comment_counting(false);
flush_rewrite_rules(false);
// Nobody sees the tour of the editor each time.
foreach ($ids as $id) update_user_meta($id, 'wp_persisted_preferences', ['core/edit-post' => ['welcomeGuide' => false], '_modified' => '2025-01-01T00:00:00Z']);
[$password] = WP_Application_Passwords::create_new_application_password($ids['app'], ['name' => 'app']);
echo "\n", json_encode(['app' => $password]), "\n";
