BEGIN TRANSACTION;
CREATE TABLE changes (
            revision INTEGER PRIMARY KEY AUTOINCREMENT,
            handle_id INTEGER NOT NULL REFERENCES handles (id),
            version INTEGER NOT NULL,
            action TEXT NOT NULL,
            body TEXT NOT NULL,
            writer TEXT NOT NULL,
            at REAL NOT NULL,
            UNIQUE (handle_id, version)
        ) STRICT;
INSERT INTO "changes" VALUES(1,1,1,'mint','{"title":"Nötes","ttl_days":null,"expires_at":null}','laptop/claude-code',1700000000.0);
INSERT INTO "changes" VALUES(3,3,1,'mint','{"title":null,"ttl_days":null,"expires_at":null}','desk/cursor',1700000000.0);
INSERT INTO "changes" VALUES(4,4,1,'mint','{"title":null,"ttl_days":null,"expires_at":null}','a program',1700000000.0);
INSERT INTO "changes" VALUES(5,5,1,'mint','{"title":null,"ttl_days":30.0,"expires_at":1702592000.0}','laptop/claude-code',1700000000.0);
INSERT INTO "changes" VALUES(18,2,14,'patch','{"ops":[{"op":"append","path":"l","value":12}]}','laptop/claude-code',1700000013.0);
INSERT INTO "changes" VALUES(19,2,15,'patch','{"ops":[{"op":"append","path":"l","value":13}]}','laptop/claude-code',1700000014.0);
INSERT INTO "changes" VALUES(20,2,16,'patch','{"ops":[{"op":"append","path":"l","value":14}]}','laptop/claude-code',1700000015.0);
INSERT INTO "changes" VALUES(21,2,17,'patch','{"ops":[{"op":"append","path":"l","value":15}]}','laptop/claude-code',1700000016.0);
INSERT INTO "changes" VALUES(22,2,18,'patch','{"ops":[{"op":"append","path":"l","value":16}]}','laptop/claude-code',1700000017.0);
INSERT INTO "changes" VALUES(23,2,19,'patch','{"ops":[{"op":"append","path":"l","value":17}]}','laptop/claude-code',1700000018.0);
INSERT INTO "changes" VALUES(24,2,20,'patch','{"ops":[{"op":"append","path":"l","value":18}]}','laptop/claude-code',1700000019.0);
INSERT INTO "changes" VALUES(25,2,21,'patch','{"ops":[{"op":"append","path":"l","value":19}]}','laptop/claude-code',1700000020.0);
INSERT INTO "changes" VALUES(26,5,2,'touch','{"ttl_days":60.0,"expires_at":1705184020.0}','laptop/claude-code',1700000020.0);
INSERT INTO "changes" VALUES(27,1,2,'patch','{"ops":[{"op":"append","path":"l","value":0},{"op":"set_key","path":"","key":"k0","value":0}]}','laptop/other',1700000021.0);
INSERT INTO "changes" VALUES(28,1,3,'patch','{"ops":[{"op":"append","path":"l","value":1},{"op":"set_key","path":"","key":"k1","value":1}]}','laptop/other',1700000022.0);
INSERT INTO "changes" VALUES(29,1,4,'patch','{"ops":[{"op":"append","path":"l","value":2},{"op":"set_key","path":"","key":"k2","value":2}]}','laptop/other',1700000023.0);
INSERT INTO "changes" VALUES(30,1,5,'save','{"ttl_days":400.0,"expires_at":1734560023.0}','laptop/claude-code',1700000023.0);
INSERT INTO "changes" VALUES(31,6,1,'mint','{"title":null,"ttl_days":null,"expires_at":null}','laptop/claude-code',1700000023.0);
INSERT INTO "changes" VALUES(32,6,2,'delete','{}','laptop/claude-code',1700000023.0);
INSERT INTO "changes" VALUES(33,7,1,'mint','{"title":null,"ttl_days":null,"expires_at":null}','desk/cursor',1700000023.0);
INSERT INTO "changes" VALUES(34,7,2,'delete','{}','desk/cursor',1700000023.0);
INSERT INTO "changes" VALUES(35,8,1,'mint','{"title":null,"ttl_days":0.001,"expires_at":1700000109.4}','desk/cursor',1700000023.0);
CREATE TABLE checkpoints (
            handle_id INTEGER NOT NULL REFERENCES handles (id),
            version INTEGER NOT NULL,
            revision INTEGER NOT NULL,
            title TEXT,
            expires_at REAL,
            ttl_days REAL,
            writer TEXT NOT NULL,
            at REAL NOT NULL,
            document TEXT NOT NULL,
            PRIMARY KEY (handle_id, version)
        ) STRICT;
INSERT INTO "checkpoints" VALUES(1,1,1,'Nötes',NULL,NULL,'laptop/claude-code',1700000000.0,'{"l":[],"n":[1,1.0,-0.0,1000000000000000000000000000000,1e-07],"text":"Zoë 猫  ","deep":[[{"a":null}]]}');
INSERT INTO "checkpoints" VALUES(3,1,3,NULL,NULL,NULL,'desk/cursor',1700000000.0,'{"of":"bob"}');
INSERT INTO "checkpoints" VALUES(4,1,4,NULL,NULL,NULL,'a program',1700000000.0,'{"of":"a program"}');
INSERT INTO "checkpoints" VALUES(5,1,5,NULL,1702592000.0,30.0,'laptop/claude-code',1700000000.0,'{"l":[1]}');
INSERT INTO "checkpoints" VALUES(2,13,17,NULL,NULL,NULL,'laptop/claude-code',1700000012.0,'{"l":["xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx",0,1,2,3,4,5,6,7,8,9,10,11]}');
INSERT INTO "checkpoints" VALUES(1,5,30,'Nötes',1734560023.0,400.0,'laptop/claude-code',1700000023.0,'{"l":[7],"n":[1,1.0,-0.0,1000000000000000000000000000000,1e-07],"text":"Zoë 猫  ","deep":[[{"a":null}]]}');
INSERT INTO "checkpoints" VALUES(6,1,31,NULL,NULL,NULL,'laptop/claude-code',1700000023.0,'{"was":"alice"}');
INSERT INTO "checkpoints" VALUES(7,1,33,NULL,NULL,NULL,'desk/cursor',1700000023.0,'{"was":"bob"}');
INSERT INTO "checkpoints" VALUES(8,1,35,NULL,1700000109.4,0.001,'desk/cursor',1700000023.0,'{}');
CREATE TABLE handles (
            id INTEGER PRIMARY KEY,
            space TEXT NOT NULL,
            user TEXT NOT NULL,
            handle TEXT NOT NULL,
            kind TEXT NOT NULL,
            title TEXT,
            version INTEGER NOT NULL,
            revision INTEGER NOT NULL,
            created_at REAL NOT NULL,
            updated_at REAL NOT NULL,
            expires_at REAL,
            ttl_days REAL,
            last_writer TEXT NOT NULL,
            size_bytes INTEGER NOT NULL,
            outline TEXT NOT NULL,
            words TEXT NOT NULL,
            oldest_version INTEGER NOT NULL,
            history_bytes INTEGER NOT NULL,
            deleted_at REAL,
            UNIQUE (space, user, handle)
        ) STRICT;
INSERT INTO "handles" VALUES(1,'agent','alice','notes_5rftdizu','notes','Nötes',5,30,1700000000.0,1700000023.0,1734560023.0,400.0,'laptop/claude-code',108,'l: list(1), n: list(5), text: text(7), deep: list(1)','notes_5rftdizu
notes
nötes',1,582,NULL);
INSERT INTO "handles" VALUES(2,'agent','alice','log_evaut8k7','log',NULL,21,25,1700000000.0,1700000020.0,NULL,NULL,'laptop/claude-code',120,'l: list(21)','log_evaut8k7
log
',13,376,NULL);
INSERT INTO "handles" VALUES(3,'agent','bob','notes_qh8bq6gm','notes',NULL,1,3,1700000000.0,1700000000.0,NULL,NULL,'desk/cursor',12,'of: text(3)','notes_qh8bq6gm
notes
',1,60,NULL);
INSERT INTO "handles" VALUES(4,'app','alice','cache_72jf536n','cache',NULL,1,4,1700000000.0,1700000000.0,NULL,NULL,'a program',18,'of: text(9)','cache_72jf536n
cache
',1,66,NULL);
INSERT INTO "handles" VALUES(5,'agent','alice','brief_vidrefm9','brief',NULL,2,26,1700000000.0,1700000020.0,1705184020.0,60.0,'laptop/claude-code',9,'l: list(1)','brief_vidrefm9
brief
',1,108,NULL);
INSERT INTO "handles" VALUES(6,'agent','alice','gone_fpc8rr8z','gone',NULL,2,32,1700000023.0,1700000023.0,NULL,NULL,'laptop/claude-code',15,'was: text(5)','gone_fpc8rr8z
gone
',1,63,1700000023.0);
INSERT INTO "handles" VALUES(7,'agent','bob','gone_jfuw9t9h','gone',NULL,2,34,1700000023.0,1700000023.0,NULL,NULL,'desk/cursor',13,'was: text(3)','gone_jfuw9t9h
gone
',1,61,1700000023.0);
INSERT INTO "handles" VALUES(8,'agent','bob','past_ric3iqus','past',NULL,1,35,1700000023.0,1700000023.0,1700000109.4,0.001,'desk/cursor',2,'','past_ric3iqus
past
',1,59,NULL);
CREATE TABLE holdings (
            space TEXT NOT NULL,
            user TEXT NOT NULL,
            kind TEXT NOT NULL,
            handles INTEGER NOT NULL,
            PRIMARY KEY (space, user, kind)
        ) STRICT, WITHOUT ROWID;
INSERT INTO "holdings" VALUES('agent','alice','brief',1);
INSERT INTO "holdings" VALUES('agent','alice','gone',0);
INSERT INTO "holdings" VALUES('agent','alice','log',1);
INSERT INTO "holdings" VALUES('agent','alice','notes',1);
INSERT INTO "holdings" VALUES('agent','bob','gone',0);
INSERT INTO "holdings" VALUES('agent','bob','notes',1);
INSERT INTO "holdings" VALUES('agent','bob','past',1);
INSERT INTO "holdings" VALUES('app','alice','cache',1);
CREATE TABLE ledger (
            origin BLOB NOT NULL,
            sequence INTEGER NOT NULL,
            space TEXT NOT NULL,
            user TEXT NOT NULL,
            revision INTEGER NOT NULL,
            receipt TEXT NOT NULL,
            at REAL NOT NULL,
            PRIMARY KEY (origin, sequence, space, user)
        ) STRICT, WITHOUT ROWID;
INSERT INTO "ledger" VALUES(X'7265636F726465642D7368696D2D3031',1,'agent','alice',27,'{"info":{"handle":"notes_5rftdizu","kind":"notes","title":"Nötes","version":2,"created_at":1700000000.0,"updated_at":1700000021.0,"expires_at":null,"last_writer":"laptop/other","size_bytes":115,"outline":"l: list(1), n: list(5), text: text(7), deep: list(1), k0: 0"},"is_deleted":false,"touched":[["append","l",1],["set_key","",5]]}',1700000021.0);
INSERT INTO "ledger" VALUES(X'7265636F726465642D7368696D2D3031',2,'agent','alice',28,'{"info":{"handle":"notes_5rftdizu","kind":"notes","title":"Nötes","version":3,"created_at":1700000000.0,"updated_at":1700000022.0,"expires_at":null,"last_writer":"laptop/other","size_bytes":124,"outline":"l: list(2), n: list(5), text: text(7), deep: list(1), k0: 0, k1: 1"},"is_deleted":false,"touched":[["append","l",2],["set_key","",6]]}',1700000022.0);
INSERT INTO "ledger" VALUES(X'7265636F726465642D7368696D2D3031',3,'agent','alice',29,'{"info":{"handle":"notes_5rftdizu","kind":"notes","title":"Nötes","version":4,"created_at":1700000000.0,"updated_at":1700000023.0,"expires_at":null,"last_writer":"laptop/other","size_bytes":133,"outline":"l: list(3), n: list(5), text: text(7), deep: list(1), k0: 0, k1: 1, k2: 2"},"is_deleted":false,"touched":[["append","l",3],["set_key","",7]]}',1700000023.0);
CREATE TABLE meta (
            name TEXT PRIMARY KEY,
            value TEXT NOT NULL
        ) STRICT, WITHOUT ROWID;
INSERT INTO "meta" VALUES('clock','1700001023.0');
CREATE INDEX handles_by_revision ON handles (space, user, revision DESC, kind, expires_at, deleted_at)
            WHERE deleted_at IS NULL;
CREATE INDEX handles_by_expiry ON handles (expires_at)
            WHERE expires_at IS NOT NULL AND deleted_at IS NULL;
CREATE INDEX handles_deleted ON handles (deleted_at)
            WHERE deleted_at IS NOT NULL;
DELETE FROM "sqlite_sequence";
INSERT INTO "sqlite_sequence" VALUES('changes',35);
COMMIT;
PRAGMA application_id=1835233395;
PRAGMA user_version=1;
