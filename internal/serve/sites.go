package serve

import (
	"fmt"
	"slices"

	"fairshare/policyfile"
)

// maxListed is how many changed sites a reload lists.
const maxListed = 20

// forgetSites removes the metrics of sites that a reload has removed.
func (s *server) forgetSites(old, now *runtime) {
	for _, site := range old.File.Sites {
		if s.metrics != nil && !slices.ContainsFunc(now.File.Sites, func(other policyfile.Site) bool {
			return other.Name == site.Name
		}) {
			s.metrics.forget(site.Name)
		}
	}
}

// siteChanges returns what a reload has changed of the sites.
func siteChanges(old, now []policyfile.Site) (lines []string) {
	byName := func(sites []policyfile.Site, name string) *policyfile.Site {
		if i := slices.IndexFunc(sites, func(s policyfile.Site) bool { return s.Name == name }); i >= 0 {
			return &sites[i]
		}
		return nil
	}
	for i := range now {
		switch before := byName(old, now[i].Name); {
		case before == nil:
			lines = append(lines, "new "+now[i].Description())
		case before.Description() != now[i].Description():
			lines = append(lines, "changed "+now[i].Description())
		}
	}
	for i := range old {
		if byName(now, old[i].Name) == nil {
			lines = append(lines, fmt.Sprintf("site %s is gone: requests for its hosts are answered 421; those in "+
				"progress end as usual", old[i].Name))
		}
	}
	if n := len(lines); n > maxListed {
		lines = append(lines[:maxListed:maxListed], fmt.Sprintf("and %d more changes of sites", n-maxListed))
	}
	return lines
}
