package prefixes

import (
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"fairshare/internal/smalldisk"
)

// A full disk is logged, the new version is used, and the old copy stays intact.
func TestFullDisk(t *testing.T) {
	const size = 1 << 20
	folder := smalldisk.New(t, size)
	large := strings.Repeat("# as long as can be\n", size/20)
	synctest.Test(t, func(t *testing.T) {
		server := &serving{steps: []func(http.ResponseWriter, *http.Request){
			text("192.0.2.1\n"),
			func(w http.ResponseWriter, r *http.Request) {
				w.Header().Set("ETag", `"large"`)
				io.WriteString(w, "192.0.2.2\n"+large)
			},
			text("192.0.2.2\n# again\n" + large), text("192.0.2.3\n"),
		}}
		source := Source{Name: "drop", URL: "https://lists.example/", Every: time.Hour}
		var n notebook
		k, err := Open(t.Context(), n.options(Options{Sources: []Source{source}, Folder: folder, Transport: server}))
		if err != nil {
			t.Fatal(err)
		}
		running(t, k)
		n.expect(t, "at start", "192.0.2.1/32")
		time.Sleep(3 * time.Hour)
		n.expect(t, "full", "192.0.2.2/32",
			"the lists from URLs are in use, but copies cannot be stored: "+folder+
				": no space left on device; after a restart without these URLs they would be missing")
		if etag := server.requests()[2].Header.Get("If-None-Match"); etag != "" {
			t.Errorf("what is not kept is asked for with %s: 304 would leave the copy as it is", etag)
		}
		files, err := os.ReadDir(folder)
		if err != nil || len(files) != 1 {
			t.Errorf("left behind: %v, %v", files, err)
		}
		var again notebook
		if _, err := Open(t.Context(), again.options(Options{Sources: []Source{source}, Folder: folder,
			Later: true})); err != nil {
			t.Fatal(err)
		}
		again.expect(t, "the old copy", "192.0.2.1/32")
		time.Sleep(2 * time.Hour)
		n.expect(t, "room again", "192.0.2.3/32", "copies of lists from URLs are stored again")
		if data, err := os.ReadFile(filepath.Join(folder, "drop.copy")); err != nil ||
			!strings.HasSuffix(string(data), "\n192.0.2.3\n") {
			t.Errorf("%s, %v", data, err)
		}
	})
}
