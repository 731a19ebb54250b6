"""Links that change as traces say, many times a second: `traces` (values), `player`, `lock` (one player at a time)."""
