// The environment as this library may read it: without allocating, and not at all in a process with raised privileges.
//
// Called from any thread, also inside malloc. A job that calls setenv in another thread at the same moment is no worse off than with
// getenv.
#pragma once

namespace reprise {

// False while libc has not set environ yet (the loader's own first allocations): do not cache an answer then.
bool environment_ready();
// The value, or nullptr: also when unset or when the process is AT_SECURE (setuid and friends), whose environment is the attacker's.
const char *environment(const char *name);
// True when the value is "1", "yes", "on" or "true".
bool environment_flag(const char *name);

// Does `text` match the shell pattern (`*`, `?`)? Not fnmatch: that one may allocate for multibyte locales.
bool glob_match(const char *pattern, const char *pattern_end, const char *text);

}  // namespace reprise
