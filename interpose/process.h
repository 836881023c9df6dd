// The life of a process under the preload: constructor, fork handlers, what is said at its end.
#pragma once

namespace reprise {

// The engine is open, or an adapter has instrumented a framework: the process is attached (and tells the one that REPRISE_REQUIRE watches).
void announce_attached();

}  // namespace reprise
