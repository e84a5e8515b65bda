// Command fiber guards a site made with fiber, which is not built on net/http: it
// fills in the requests of the guard by hand.
package main

import (
	"context"
	"errors"
	"fmt"
	"log"
	"net/http"
	"net/netip"
	"strconv"
	"time"

	"fairshare"
	"fairshare/memlimit"

	"github.com/gofiber/fiber/v2"
)

func main() {
	guard, err := memlimit.NewGuard(&fairshare.Policy{Rules: []fairshare.Rule{{
		Name:  "100 requests a minute",
		Limit: &fairshare.Limit{Resource: fairshare.Requests, N: 100, Window: time.Minute},
	}}}, memlimit.Options{})
	if err != nil {
		log.Fatal(err)
	}
	log.Fatal(newSite(guard).Listen("127.0.0.1:8080"))
}

func newSite(guard *fairshare.Guard) *fiber.App {
	site := fiber.New()
	site.Use(limited(guard))
	site.Get("/hello", func(c *fiber.Ctx) error { return c.SendString("hello") })
	site.Get("/report", func(c *fiber.Ctx) error {
		c.Locals(costKey, int64(10))
		return c.SendString("an expensive report")
	})
	return site
}

// costKey is where handlers leave the cost of a request, an int64.
const costKey = "fairshare cost"

// limited returns middleware that judges each request.
func limited(guard *fairshare.Guard) fiber.Handler {
	return func(c *fiber.Ctx) error {
		addr, _ := netip.ParseAddr(c.IP()) // invalid: all such clients count as one
		req := fairshare.Request{Addr: addr.Unmap(), Method: c.Method(), Host: string(c.Request().Host()),
			UserAgent: c.Get("User-Agent"), Header: header{c}}
		req.SetTarget(c.OriginalURL())
		err := guard.Do(c.UserContext(), &req, func(context.Context) (fairshare.Outcome, error) {
			err := c.Next()
			return outcome(c, err), err
		})
		var refused *fairshare.RefusedError
		if errors.As(err, &refused) {
			return answer(c, refused)
		}
		return err
	}
}

// outcome returns what the request has cost. fiber answers err later.
func outcome(c *fiber.Ctx, err error) fairshare.Outcome {
	out := fairshare.Outcome{Status: c.Response().StatusCode(), Bytes: int64(len(c.Response().Body())), Cost: 1}
	if cost, reported := c.Locals(costKey).(int64); reported {
		out.Cost = cost
	}
	var known *fiber.Error
	switch {
	case errors.As(err, &known):
		out.Status = known.Code
	case err != nil:
		out.Status = http.StatusInternalServerError
	}
	return out
}

func answer(c *fiber.Ctx, refused *fairshare.RefusedError) error {
	if refused.Action == fairshare.Block {
		return c.Status(http.StatusForbidden).SendString("This site does not accept requests of this kind.\n")
	}
	wait := max(1, int64((refused.Wait+time.Second-1)/time.Second))
	c.Set("Retry-After", strconv.FormatInt(wait, 10))
	return c.Status(http.StatusTooManyRequests).SendString(
		fmt.Sprintf("You have sent too many requests. Please wait %d seconds.\n", wait))
}

// A header gives the guard the header of a request.
type header struct{ c *fiber.Ctx }

// Values implements [fairshare.Header].
func (h header) Values(name string) []string {
	var values []string
	for _, v := range h.c.Request().Header.PeekAll(name) {
		values = append(values, string(v))
	}
	return values
}
