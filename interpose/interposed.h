// Whether our malloc is the one that this process uses.
//
// Asked at the first segment, from any thread, not in hooks.
#pragma once

namespace reprise {

// Preloaded or linked, and first of all that define malloc.
bool interposed();
// Says once what hides the tensors from us and the right order, when something does.
void check_interposed_once();

}  // namespace reprise
