B#pragma D attributes Evolving/Evolving/ISA provider myapp provider
provider myapp { probe request__start(int id, char *path) : (int, string); probe request__done(uint64_t); };
#pragma D depends_on library unistd.d
#pragma D binding "1.2" x
#pragma D error "text"
dtrace:::BEGIN, profile:::tick-10ms, profile-97hz, pid123:a*:[fg]?:1a, syscall::read*:, :::END, ERROR { @[stackdepth] = count(); }
