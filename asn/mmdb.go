package asn

import (
	"errors"
	"fmt"

	"github.com/oschwald/maxminddb-golang/v2"

	"fairshare"
)

// A record holds the fields that publishers use for the owner of a network:
// MaxMind and DB-IP the first two, IPinfo the others.
type record struct {
	Number       uint32 `maxminddb:"autonomous_system_number"`
	Organization string `maxminddb:"autonomous_system_organization"`

	ASN  string `maxminddb:"asn"`
	Name string `maxminddb:"name"`
	AS   string `maxminddb:"as_name"`
	Type string `maxminddb:"type"`
}

// readMMDB reads a database in MMDB form.
func (b *builder) readMMDB(data []byte) error {
	db, err := maxminddb.OpenBytes(data)
	if err != nil {
		return fmt.Errorf("it is not a whole database in MMDB form: %w", err)
	}
	defer db.Close()
	owners := map[uintptr]uint32{} // by the place of the record; 0: nobody
	for network := range db.Networks() {
		if err := network.Err(); err != nil {
			return fmt.Errorf("the database is damaged: %w", err)
		}
		owner, known := owners[network.Offset()]
		if !known {
			var r record
			if err := network.Decode(&r); err != nil {
				if wrong := (maxminddb.UnmarshalTypeError{}); errors.As(err, &wrong) {
					return fmt.Errorf("%w, but of the type %s: %w", errNoOwners, quote(db.Metadata.DatabaseType), err)
				}
				return fmt.Errorf("the database is damaged: %w", err)
			}
			if owner, err = b.ownerOf(&r); err != nil {
				return err
			}
			owners[network.Offset()] = owner
		}
		if owner == 0 {
			continue
		}
		first, last := ends(network.Prefix())
		if err := b.add(first, last, owner); err != nil {
			return err
		}
	}
	if len(b.owners) == 1 {
		return fmt.Errorf("%w, but of the type %s", errNoOwners, quote(db.Metadata.DatabaseType))
	}
	return nil
}

// ownerOf returns the place of a record's owner, 0 if it has none.
func (b *builder) ownerOf(r *record) (uint32, error) {
	number, name := r.Number, r.Organization
	if number == 0 && r.ASN != "" {
		var ok bool
		if number, ok = fairshare.ASNumber(r.ASN); !ok {
			return 0, fmt.Errorf("%s is not the number of an autonomous system", quote(r.ASN))
		}
		if name = r.Name; name == "" {
			name = r.AS
		}
	}
	if number == 0 {
		return 0, nil
	}
	return b.owner(newOwner(number, name, r.Type)), nil
}
