package pgregistry

// migrations create the tables: the first makes version 1, the next turns version 1 into
// version 2, and so on. {} is the schema. A version that was released never changes.
//
// Times are Unix nanoseconds; 0 is the zero time. Durations are in nanoseconds. A client
// is a key of package key. Texts are as [encode] writes them.
var migrations = []string{schema1}

// The columns minute and rank_… change rarely, so that most updates of a client touch no
// index (heap-only tuples). Otherwise updates of indexes would take most of the time, and
// most of the write-ahead log. A rank grows with its value, in steps of an
// eighth of a factor e. The column kept says why a row must not be removed: 1 a recorded
// ban, 2 an override, a label or a note.
//
// The table names has addresses of bots with the host names that the DNS has confirmed, and
// when a server has written them, by the clock of the database.
//
// The table state has the Version. Its row changes only under the lock of changes, so
// that numbers are in the order of commits. The table counts has the numbers of rows. It
// has several rows, which add up, so that servers do not wait for each other.
const schema1 = `
CREATE TABLE {}clients (
	id bigint GENERATED ALWAYS AS IDENTITY,
	client bytea NOT NULL,
	kept smallint NOT NULL DEFAULT 0,
	state smallint NOT NULL DEFAULT 0,
	first bigint NOT NULL DEFAULT 0,
	last bigint NOT NULL DEFAULT 0,
	requests bigint NOT NULL DEFAULT 0,
	refused bigint NOT NULL DEFAULT 0,
	blocked bigint NOT NULL DEFAULT 0,
	dry_run bigint NOT NULL DEFAULT 0,
	cpu bigint NOT NULL DEFAULT 0,
	took bigint NOT NULL DEFAULT 0,
	bytes bigint NOT NULL DEFAULT 0,
	errors bigint NOT NULL DEFAULT 0,
	bot text COLLATE "C" NOT NULL DEFAULT '',
	fleet text COLLATE "C" NOT NULL DEFAULT '',
	agent text COLLATE "C" NOT NULL DEFAULT '',
	minute integer NOT NULL GENERATED ALWAYS AS ((last / 60000000000)::integer) STORED,
	rank_requests smallint NOT NULL GENERATED ALWAYS AS
		(CASE WHEN requests >= 100 THEN floor(8 * ln(requests::float8))::smallint ELSE 0 END) STORED,
	rank_refused smallint NOT NULL GENERATED ALWAYS AS
		(CASE WHEN refused >= 100 THEN floor(8 * ln(refused::float8))::smallint ELSE 0 END) STORED,
	rank_cpu smallint NOT NULL GENERATED ALWAYS AS
		(CASE WHEN cpu >= 10000000000 THEN floor(8 * ln(cpu::float8))::smallint ELSE 0 END) STORED
) WITH (fillfactor = 80, autovacuum_vacuum_scale_factor = 0.05);
CREATE UNIQUE INDEX clients_client ON {}clients (client);
CREATE UNIQUE INDEX clients_id ON {}clients (id);
CREATE INDEX clients_minute ON {}clients (kept, minute, id);
CREATE INDEX clients_requests ON {}clients (rank_requests) WHERE rank_requests > 0;
CREATE INDEX clients_refused ON {}clients (rank_refused) WHERE rank_refused > 0;
CREATE INDEX clients_cpu ON {}clients (rank_cpu) WHERE rank_cpu > 0;
CREATE INDEX clients_bot ON {}clients (bot) WHERE bot <> '';
CREATE INDEX clients_fleet ON {}clients (fleet) WHERE fleet <> '';

CREATE TABLE {}overrides (
	client bytea PRIMARY KEY,
	action smallint NOT NULL,
	since bigint NOT NULL,
	until bigint NOT NULL,
	reason text COLLATE "C" NOT NULL
);
CREATE INDEX overrides_until ON {}overrides (until) WHERE until <> 0;

CREATE TABLE {}labels (
	client bytea NOT NULL,
	name text COLLATE "C" NOT NULL,
	PRIMARY KEY (client, name)
);
CREATE INDEX labels_name ON {}labels (name);

CREATE TABLE {}notes (
	client bytea PRIMARY KEY,
	text text COLLATE "C" NOT NULL
);

CREATE TABLE {}bans (
	client bytea NOT NULL,
	kind smallint NOT NULL,
	rule text COLLATE "C" NOT NULL,
	number integer NOT NULL,
	began bigint NOT NULL,
	until bigint NOT NULL,
	since bigint NOT NULL,
	dry boolean NOT NULL,
	change bigint NOT NULL,
	PRIMARY KEY (client, kind, rule)
);
CREATE INDEX bans_until ON {}bans (until);
CREATE INDEX bans_change ON {}bans (change);

CREATE TABLE {}stories (
	client bytea NOT NULL,
	rule text COLLATE "C" NOT NULL,
	network bytea NOT NULL,
	id text COLLATE "C" NOT NULL,
	addr bytea NOT NULL,
	bot text COLLATE "C" NOT NULL,
	state smallint NOT NULL,
	action smallint NOT NULL,
	ban smallint NOT NULL,
	dry boolean NOT NULL,
	status integer NOT NULL,
	first bigint NOT NULL,
	last bigint NOT NULL,
	count bigint NOT NULL,
	until bigint NOT NULL,
	counted text COLLATE "C" NOT NULL,
	resource text COLLATE "C" NOT NULL,
	used bigint NOT NULL,
	allowed bigint NOT NULL,
	span bigint NOT NULL,
	method text COLLATE "C" NOT NULL,
	host text COLLATE "C" NOT NULL,
	path text COLLATE "C" NOT NULL,
	agent text COLLATE "C" NOT NULL,
	ban_began bigint NOT NULL,
	ban_method text COLLATE "C" NOT NULL,
	ban_path text COLLATE "C" NOT NULL,
	robots text COLLATE "C" NOT NULL,
	PRIMARY KEY (client, rule)
);
CREATE INDEX stories_id ON {}stories (id);
CREATE INDEX stories_last ON {}stories (last);
CREATE INDEX stories_network ON {}stories (network, last);

CREATE TABLE {}networks (
	network bytea PRIMARY KEY,
	stories integer NOT NULL
);
CREATE INDEX networks_stories ON {}networks (stories, network);

CREATE TABLE {}changes (
	id bigint PRIMARY KEY,
	client bytea NOT NULL,
	at bigint NOT NULL,
	forget boolean NOT NULL
);

CREATE TABLE {}state (
	id integer PRIMARY KEY CHECK (id = 1),
	overrides bigint NOT NULL DEFAULT 1,
	lifted bigint NOT NULL DEFAULT 0,
	bans bigint NOT NULL DEFAULT 0
);
INSERT INTO {}state (id) VALUES (1);

CREATE TABLE {}counts (
	slot integer PRIMARY KEY,
	clients bigint NOT NULL DEFAULT 0,
	bans bigint NOT NULL DEFAULT 0,
	stories bigint NOT NULL DEFAULT 0
);
INSERT INTO {}counts (slot) SELECT generate_series(0, 15);

CREATE TABLE {}names (
	addr bytea PRIMARY KEY,
	names text COLLATE "C" NOT NULL,
	at bigint NOT NULL
);
CREATE INDEX names_at ON {}names (at);

CREATE TABLE {}settings (
	name text COLLATE "C" PRIMARY KEY,
	value bytea NOT NULL
);

-- drop_stories removes the oldest story of the network with the most stories, up to n
-- times: while there are more than bound in all, else while this network has more than
-- tenth. If each network has one, it removes the oldest of all.
CREATE FUNCTION {}drop_stories(total bigint, bound bigint, tenth bigint, n integer) RETURNS integer
LANGUAGE plpgsql AS $$
DECLARE
	most record;
	dropped integer := 0;
BEGIN
	WHILE dropped < n LOOP
		SELECT w.network, w.stories INTO most FROM {}networks w ORDER BY w.stories DESC, w.network DESC LIMIT 1;
		EXIT WHEN NOT FOUND OR most.stories <= CASE WHEN total - dropped > bound THEN 0 ELSE tenth END;
		IF most.stories > 1 THEN
			DELETE FROM {}stories WHERE (client, rule) = (SELECT s.client, s.rule FROM {}stories s
				WHERE s.network = most.network ORDER BY s.last LIMIT 1);
		ELSE
			DELETE FROM {}stories WHERE (client, rule) = (SELECT s.client, s.rule FROM {}stories s
				ORDER BY s.last LIMIT 1) RETURNING network, 1 INTO most;
		END IF;
		EXIT WHEN NOT FOUND;
		UPDATE {}networks SET stories = stories - 1 WHERE network = most.network;
		DELETE FROM {}networks WHERE network = most.network AND stories <= 0;
		dropped := dropped + 1;
	END LOOP;
	RETURN dropped;
END $$;
`
