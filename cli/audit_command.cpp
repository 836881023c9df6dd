// reprise audit: runs a command under the audit policy, which changes nothing, and says which segments replayed on changed state.
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>

#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cli/commands.h"
#include "cli/job.h"
#include "cli/place.h"
#include "cli/program.h"
#include "cli/summary.h"
#include "cli/text.h"

namespace reprise::cli {
namespace {

constexpr const char *kName = "audit";

// Records and report of this run, in a folder of its own unless the user keeps them.
class Scratch {
  public:
    Scratch() {
        path_ = temporary_pattern("audit");
        if (mkdtemp(path_.data()) == nullptr) path_.clear();
    }
    ~Scratch() {
        if (path_.empty()) return;
        unlink((path_ + "/records").c_str());
        unlink((path_ + "/report").c_str());
        rmdir(path_.c_str());
    }
    Scratch(const Scratch &) = delete;
    Scratch &operator=(const Scratch &) = delete;
    const std::string &path() const { return path_; }

  private:
    std::string path_;
};

// Changes when the file is written.
std::string stamp_of(const std::string &path) {
    struct stat status {};
    if (stat(path.c_str(), &status) != 0) return "";
    return format("%lld.%09ld %lld", static_cast<long long>(status.st_mtim.tv_sec), static_cast<long>(status.st_mtim.tv_nsec),
                  static_cast<long long>(status.st_size));
}

volatile sig_atomic_t g_child = 0;
void forward_signal(int signal) {
    if (g_child > 0) kill(static_cast<pid_t>(g_child), signal);
}

// Runs it as a child: as a shell does, ^C is the job's to answer, and what asks us to end is passed on.
int run_child(const std::string &path, const std::vector<std::string> &program, const Environment &environment) {
    constexpr int kSignals[] = {SIGINT, SIGQUIT, SIGCHLD, SIGTERM, SIGHUP};
    constexpr size_t kCount = sizeof kSignals / sizeof kSignals[0];
    struct sigaction before[kCount];
    sigset_t passed_on, mask;
    sigemptyset(&passed_on);
    sigaddset(&passed_on, SIGTERM);
    sigaddset(&passed_on, SIGHUP);
    // Until the child is known there is nobody to pass them to: they wait.
    sigprocmask(SIG_BLOCK, &passed_on, &mask);
    for (size_t i = 0; i < kCount; ++i) {
        struct sigaction action {};
        action.sa_handler = i < 2    ? SIG_IGN
                            : i == 2 ? SIG_DFL
                                     : forward_signal;  // an ignored SIGCHLD would take the child's status with it
        sigaction(kSignals[i], &action, &before[i]);
    }
    fflush(nullptr);
    const pid_t child = fork();
    if (child == 0) {
        for (size_t i = 0; i < kCount; ++i) sigaction(kSignals[i], &before[i], nullptr);
        sigprocmask(SIG_SETMASK, &mask, nullptr);
        _exit(become(kName, path, program, environment));
    }
    g_child = child;
    sigprocmask(SIG_SETMASK, &mask, nullptr);
    if (child < 0) {
        complain(kName, std::string("no process can be started: ") + strerror(errno));
        return kOwnFailure;
    }
    int status = 0;
    pid_t ended = 0;
    while ((ended = waitpid(child, &status, 0)) < 0 && errno == EINTR) {
    }
    g_child = 0;
    if (ended != child) {
        complain(kName, std::string("how the command ended cannot be known: ") + strerror(errno));
        return kOwnFailure;
    }
    return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

Json findings_json(const Summary &summary, uint64_t forwards, uint64_t replays, int status) {
    Json findings = Json::array();
    for (const auto &[name, segment] : summary.segments) {
        for (const auto &[buffer, finding] : segment.findings) {
            findings.push_back({{"segment", name},
                                {"buffer", buffer},
                                {"kind", "changed"},
                                {"replays", finding.replays},
                                {"bytes", finding.bytes},
                                {"bytes_least", finding.least},
                                {"bytes_most", finding.most},
                                {"remedy", remedy_for("audit", "")}});
        }
        for (const auto &[reason, count] : segment.reasons) {
            findings.push_back({{"segment", name},
                                {"kind", "refused"},
                                {"replays", count},
                                {"reason", reason},
                                {"remedy", remedy_for("rejection", reason)}});
        }
    }
    return {
        {"schema", "reprise.audit/1"}, {"forwards", forwards}, {"replays", replays}, {"command_status", status}, {"findings", findings}};
}

struct Findings {
    std::string text;
    size_t count = 0;
};

Findings findings_text(const Summary &summary) {
    Findings result;
    Table changed({{"segment"},
                   {"buffer"},
                   {"replays", Table::Align::kRight},
                   {"bytes changed", Table::Align::kRight},
                   {"least", Table::Align::kRight},
                   {"most", Table::Align::kRight}});
    for (const auto &[name, segment] : summary.segments) {
        for (const auto &[buffer, finding] : segment.findings) {
            changed.add({printable(name), printable(buffer), human_count(finding.replays), human_bytes(static_cast<double>(finding.bytes)),
                         human_bytes(static_cast<double>(finding.least)), human_bytes(static_cast<double>(finding.most))});
            ++result.count;
        }
    }
    if (result.count != 0) {
        result.text = "Replayed on changed state: the gradients of these segments are not those of their forward.\n\n" +
                      changed.text("  ") + "\nWhat to do: " + remedy_for("audit", "") + ".\n";
    }
    for (const auto &[name, segment] : summary.segments) {
        for (const auto &[reason, times] : segment.reasons) {
            result.text += std::string(result.count == 0 ? "" : "\n") + "Segment '" + printable(name) + "', " + plural(times, "time") +
                           ": " + printable(reason) + "\nWhat to do: " + remedy_for("rejection", reason) + ".\n";
            ++result.count;
        }
    }
    return result;
}

struct Choice {
    bool json = false;
    std::string output;
};

int audit(const std::vector<std::string> &program, JobOptions &options, const Choice &choice) {
    Scratch scratch;
    if (scratch.path().empty()) {
        complain(kName, std::string("no folder for temporary files (") + strerror(errno) + "): set TMPDIR to one that can be written");
        return kOwnFailure;
    }
    if (options.records.empty()) options.records = scratch.path() + "/records";
    if (options.report.empty()) options.report = scratch.path() + "/report";
    options.policy = "audit";
    for (const std::string &path : {options.records, options.report}) {
        struct stat status {};
        if (stat(path.c_str(), &status) != 0 || S_ISREG(status.st_mode) || S_ISDIR(status.st_mode)) continue;
        complain(kName, "'" + printable(path) + "' is a pipe or a device, and the findings are read from it again: give a file");
        return kOwnFailure;
    }
    Environment environment;
    if (const std::string problem = job_environment(options, &environment); !problem.empty()) {
        complain(kName, problem);
        return kOwnFailure;
    }
    std::string path;
    if (const int status = check_program(kName, program, options.require, &path); status != 0) return status;
    // A file that the user keeps may hold earlier runs: what was there before is not this run's.
    Summary summary;
    uint64_t lines_before = 0;
    if (access(options.records.c_str(), F_OK) == 0) lines_before = read_file(options.records, [](Line &) {}).lines;
    const std::string report_before = stamp_of(options.report);

    const int status = run_child(path, program, environment);

    if (access(options.records.c_str(), F_OK) == 0) {
        const ReadResult read = read_file(options.records, [&](Line &line) {
            if (line.number > lines_before) summary.add(line);
        });
        if (!read.problem.empty()) complain(kName, "the records '" + printable(options.records) + "' " + read.problem);
    }
    if (stamp_of(options.report) != report_before) summarise(options.report, summary);
    uint64_t forwards = 0, replays = 0;
    for (const Json &report : summary.reports) {
        forwards += number_of(report, "forwards");
        replays += number_of(report, "replays");
    }
    uint64_t recorded = 0;
    for (const auto &[name, segment] : summary.segments) recorded += segment.records;
    replays = std::max(replays, recorded);

    Findings findings = findings_text(summary);
    if (choice.json) {
        findings.text = findings_json(summary, forwards, replays, status).dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
    } else if (findings.count == 0 && replays != 0) {
        findings.text =
            "No replay ran on changed state (" + plural(replays, "replay") + " of " + plural(summary.segments.size(), "segment") + ").\n";
    }
    FILE *const out = choice.output.empty() ? stdout : fopen(choice.output.c_str(), "we");
    const bool written =
        out != nullptr && fwrite(findings.text.data(), 1, findings.text.size(), out) == findings.text.size() && fflush(out) == 0;
    if (!written) complain(kName, "the findings cannot be written: " + std::string(strerror(errno)));
    if (out != nullptr && out != stdout) fclose(out);
    if (replays == 0 && forwards == 0) {
        complain(kName,
                 "nothing was audited: no segment ran in this command. Does it checkpoint, and did the preload load (reprise doctor)?");
    } else if (replays == 0) {
        complain(kName, "nothing was audited: " + plural(forwards, "forward") + ", and none was replayed");
    }
    if (status != 0) {
        complain(kName, format("the command failed (status %d)", status));
        return status;
    }
    if (!written) return kOwnFailure;
    return findings.count != 0 ? 1 : 0;
}

}  // namespace

void add_audit(Invocation &invocation) {
    CLI::App *command = invocation.app->add_subcommand(
        "audit", "run a command and say which segments replay on changed state: reprise audit [options] -- COMMAND...");
    auto options = std::make_shared<JobOptions>();
    auto choice = std::make_shared<Choice>();
    add_job_options(*command, *options, false);
    command->add_flag("--json", choice->json, "findings as JSON");
    command->add_option("-o,--output", choice->output, "write the findings to this file, not behind the command's own output")
        ->type_name("FILE");
    command->prefix_command();
    command->footer(
        "Nothing of the job is changed. Exit status: the command's own when it failed; else 1 when there are findings, 0 when there are "
        "none;\n"
        "127, 126 and 125 as for reprise run. The findings come on standard output, behind the command's own, unless -o names a file.");
    command->callback([&invocation, command, options, choice] {
        if (take_program(invocation, *command)) invocation.status = audit(invocation.program, *options, *choice);
    });
}

}  // namespace reprise::cli
