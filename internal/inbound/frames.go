package inbound

import "net/http"

type streams struct{}

func (s *streams) goAway() {}

func watchHTTP2(srv *http.Server) {}

var abuses []string
