package setup

import (
	"fmt"
	"slices"
	"strings"

	"fairshare"
	"fairshare/asn"
	"fairshare/policyfile"
)

// OpenOwners opens the table of the owners of addresses that a policy file
// names. It returns nil if there is none. A missing or broken file is an error
// with the position in the policy file. previous may be nil.
func OpenOwners(file *policyfile.File, previous *asn.Live, log func(string)) (*asn.Live, error) {
	if len(file.ASN.Files) == 0 {
		return nil, nil
	}
	owners, err := asn.Open(OwnerFiles(file), previous, log)
	if err != nil {
		name := file.ASN.Files[0]
		for _, named := range append(file.ASN.Files[:len(file.ASN.Files):len(file.ASN.Files)], file.ASN.Hosting) {
			if named != "" && file.ResolvePath(named) == asn.Faulty(err) {
				name = named
			}
		}
		return nil, file.Fault(name, fmt.Errorf("asn: %w", err), asn.Hint(err))
	}
	return owners, nil
}

// OwnerFiles returns the files of the table of owners that a policy file names.
func OwnerFiles(file *policyfile.File) (files asn.Files) {
	for _, name := range file.ASN.Files {
		files.Tables = append(files.Tables, file.ResolvePath(name))
	}
	if file.ASN.Hosting != "" {
		files.Hosting = file.ResolvePath(file.ASN.Hosting)
	}
	return files
}

// UnknownOwners returns a warning for each text of a condition asn that no owner
// in the table fits: such a text has no effect.
func UnknownOwners(file *policyfile.File, owners *asn.Live) []string {
	if owners == nil {
		return nil
	}
	var left []string
	for _, text := range file.OwnerTexts() {
		if !strings.HasPrefix(text, "re:") {
			left = append(left, text)
		}
	}
	typed := false
	for owner := range owners.Table().Owners() {
		if typed = typed || owner.Type != ""; len(left) == 0 {
			break
		}
		left = slices.DeleteFunc(left, func(text string) bool {
			fits, err := owner.Fits([]string{text})
			return fits || err != nil
		})
	}
	var warnings []string
	for _, text := range left {
		warning := fmt.Sprintf("asn: no owner in the table fits %q", text)
		if number, ok := fairshare.ASNumber(text); ok {
			warning = fmt.Sprintf("asn: AS%d owns no address in the table", number)
		} else if !typed {
			warning += "; the table has no types of owners, name their list: asn: {hosting: bad-asn-list.csv}"
		}
		warnings = append(warnings, "warning: "+warning)
	}
	return warnings
}
