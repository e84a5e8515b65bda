package clientaddr

// ProxyNames are the names that ParseProxies knows.
var ProxyNames = proxyNames
