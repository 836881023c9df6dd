// Attaching to Python: how the adapter's files get into an interpreter that was started without knowing of us.
//
// attach_python_environment runs in the constructor; note_tensor_allocation in a hook, on whatever thread allocates; the rest is told by
// the adapter. Two ways, because one is not enough: PYTHONPATH names a folder whose sitecustomize.py attaches (nothing runs in the
// interpreter before it is ready), and where Python ignores that (-I, -E, -S) the first tensor schedules a pending call.
#pragma once

namespace reprise {

// Is this process a Python interpreter (by its executable's name, or because it embeds one)?
bool is_python_process();
// Puts the folder of our sitecustomize first on PYTHONPATH. Only in a Python process; does nothing when the files are not installed.
void attach_python_environment();

// A tensor library has allocated. Cheap after the adapter has announced itself or the call has been scheduled.
void note_tensor_allocation();

// What reprise_attached() keeps: 0 nothing, 1 the adapter's code has run in this interpreter, 2 it has instrumented a framework.
int attached_level();
int raise_attached_level(int level);
// In a forked child: an attachment that was scheduled but has not run there may be scheduled again.
void attach_after_fork();

}  // namespace reprise
