<?php
if ($_SERVER['REQUEST_METHOD'] !== 'POST') {
	http_response_code(405);
	header('Allow: POST');
	echo 'XML-RPC server accepts POST requests only.';
	exit;
}
header('Content-Type: text/xml; charset=UTF-8');
echo '<?xml version="1.0"?><methodResponse><fault><value><struct><member><name>faultCode</name><value><int>403</int></value></member></struct></value></fault></methodResponse>';
