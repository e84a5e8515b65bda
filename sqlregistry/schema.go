package sqlregistry

// applicationID is in the file's header: "fshr".
const applicationID = 0x66736872

// migrations create a registry: the first turns an empty file into version 1, the
// next turns version 1 into version 2, and so on. The version is user_version in
// the header.
//
// Times are Unix nanoseconds; 0 is the zero time. Durations are in nanoseconds. A
// client is a key (key.go).
var migrations = []string{schema1, schema2, schema3, schema4, schema5, schema6}

// The table clients is in the order in which clients came, so that those of today
// are close to each other: a flood of new ones changes few pages. At a million rows
// this takes a third of the time of a table in the order of keys. Columns that
// change with each request are in an index only for the few clients with large
// values (Registry.Clients).
//
// The column kept says why a row must not be removed. 0 means no reason, 1 a recorded
// ban, 2 an override, a label or a note.
//
// words is the table of overrides.
//
// counts has the number of rows of the large tables, and the Version: words counts
// changes of overrides and labels, lifted is the last id of changes.
const schema1 = `
CREATE TABLE clients (
	client BLOB NOT NULL UNIQUE,
	kept INTEGER NOT NULL DEFAULT 0,
	first INTEGER NOT NULL DEFAULT 0,
	last INTEGER NOT NULL DEFAULT 0,
	requests INTEGER NOT NULL DEFAULT 0,
	refused INTEGER NOT NULL DEFAULT 0,
	blocked INTEGER NOT NULL DEFAULT 0,
	trial INTEGER NOT NULL DEFAULT 0,
	cpu INTEGER NOT NULL DEFAULT 0,
	took INTEGER NOT NULL DEFAULT 0,
	bytes INTEGER NOT NULL DEFAULT 0,
	errors INTEGER NOT NULL DEFAULT 0,
	bot TEXT NOT NULL DEFAULT '',
	state INTEGER NOT NULL DEFAULT 0,
	agent TEXT NOT NULL DEFAULT ''
);
CREATE INDEX clients_last ON clients (kept, last);
CREATE INDEX clients_requests ON clients (requests) WHERE requests >= 100;
CREATE INDEX clients_refused ON clients (refused) WHERE refused >= 100;
CREATE INDEX clients_cpu ON clients (cpu) WHERE cpu >= 10000000000;
CREATE INDEX clients_bot ON clients (bot) WHERE bot <> '';

CREATE TABLE words (
	client BLOB PRIMARY KEY,
	action INTEGER NOT NULL,
	since INTEGER NOT NULL,
	until INTEGER NOT NULL,
	reason TEXT NOT NULL
) WITHOUT ROWID;
CREATE INDEX words_until ON words (until) WHERE until <> 0;

CREATE TABLE labels (
	client BLOB NOT NULL,
	name TEXT NOT NULL,
	PRIMARY KEY (client, name)
) WITHOUT ROWID;
CREATE INDEX labels_name ON labels (name);

CREATE TABLE notes (
	client BLOB PRIMARY KEY,
	text TEXT NOT NULL
) WITHOUT ROWID;

CREATE TABLE bans (
	client BLOB NOT NULL,
	kind INTEGER NOT NULL,
	rule TEXT NOT NULL,
	number INTEGER NOT NULL,
	began INTEGER NOT NULL,
	until INTEGER NOT NULL,
	since INTEGER NOT NULL,
	dry INTEGER NOT NULL,
	PRIMARY KEY (client, kind, rule)
) WITHOUT ROWID;
CREATE INDEX bans_until ON bans (until);

CREATE TABLE stories (
	client BLOB NOT NULL,
	rule TEXT NOT NULL,
	network BLOB NOT NULL,
	id TEXT NOT NULL,
	addr BLOB NOT NULL,
	bot TEXT NOT NULL,
	state INTEGER NOT NULL,
	action INTEGER NOT NULL,
	ban INTEGER NOT NULL,
	dry INTEGER NOT NULL,
	status INTEGER NOT NULL,
	first INTEGER NOT NULL,
	last INTEGER NOT NULL,
	count INTEGER NOT NULL,
	until INTEGER NOT NULL,
	counted TEXT NOT NULL,
	resource TEXT NOT NULL,
	used INTEGER NOT NULL,
	allowed INTEGER NOT NULL,
	span INTEGER NOT NULL,
	method TEXT NOT NULL,
	host TEXT NOT NULL,
	path TEXT NOT NULL,
	agent TEXT NOT NULL,
	UNIQUE (client, rule)
);
CREATE INDEX stories_id ON stories (id);
CREATE INDEX stories_last ON stories (last);
CREATE INDEX stories_network ON stories (network, last);

CREATE TABLE networks (
	network BLOB PRIMARY KEY,
	stories INTEGER NOT NULL
) WITHOUT ROWID;
CREATE INDEX networks_stories ON networks (stories);

CREATE TABLE changes (
	id INTEGER PRIMARY KEY AUTOINCREMENT,
	client BLOB NOT NULL,
	at INTEGER NOT NULL,
	forget INTEGER NOT NULL
);

CREATE TABLE counts (
	id INTEGER PRIMARY KEY CHECK (id = 1),
	clients INTEGER NOT NULL DEFAULT 0,
	bans INTEGER NOT NULL DEFAULT 0,
	stories INTEGER NOT NULL DEFAULT 0,
	words INTEGER NOT NULL DEFAULT 1,
	lifted INTEGER NOT NULL DEFAULT 0
);
INSERT INTO counts (id) VALUES (1);

CREATE TABLE settings (
	name TEXT PRIMARY KEY,
	value BLOB NOT NULL
) WITHOUT ROWID;
INSERT INTO settings VALUES ('reference key', randomblob(32));
`

// schema2 adds to each story the request that started its latest ban.
const schema2 = `
ALTER TABLE stories ADD COLUMN ban_began INTEGER NOT NULL DEFAULT 0;
ALTER TABLE stories ADD COLUMN ban_method TEXT NOT NULL DEFAULT '';
ALTER TABLE stories ADD COLUMN ban_path TEXT NOT NULL DEFAULT '';
`

// schema3 adds to each client the fleet of its latest request.
const schema3 = `
ALTER TABLE clients ADD COLUMN fleet TEXT NOT NULL DEFAULT '';
CREATE INDEX clients_fleet ON clients (fleet) WHERE fleet <> '';
`

// schema4 adds to each story the line of robots.txt that it is based on.
const schema4 = `
ALTER TABLE stories ADD COLUMN robots TEXT NOT NULL DEFAULT '';
`

// schema5 adds the outbox: decisions that a shared registry does not have yet.
const schema5 = `
CREATE TABLE outbox (
	id INTEGER PRIMARY KEY AUTOINCREMENT,
	name TEXT UNIQUE,
	decision BLOB NOT NULL
);
`

// schema6 adds to each change its time in a shared registry; 0 means at.
const schema6 = `
ALTER TABLE changes ADD COLUMN stored INTEGER NOT NULL DEFAULT 0;
`
