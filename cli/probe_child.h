// What doctor runs in processes of their own: things that load libraries or may crash. The command starts itself with kProbeWord first;
// never for people, and not in the help.
//
//     segment   under the preload: declares memory, runs a forward, changes the memory, replays, and says as JSON what the replay saw
//     cuda      opens the CUDA driver and counts devices
#pragma once

namespace reprise::cli {

inline constexpr char kProbeWord[] = "__probe";
int probe_child(int count, char **words);

}  // namespace reprise::cli
