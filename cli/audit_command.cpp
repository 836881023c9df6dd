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
        const char *folder = getenv("TMPDIR");
        path_ = std::string(folder != nullptr && *folder != 0 ? folder : "/tmp") + "/reprise-audit-XXXXXX";
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
    struct sigaction before_int {
    }, before_quit{}, ignore{}, pass_on{};
    ignore.sa_handler = SIG_IGN;
    pass_on.sa_handler = forward_signal;
    sigaction(SIGINT, &ignore, &before_int);
    sigaction(SIGQUIT, &ignore, &before_quit);
    fflush(nullptr);
    const pid_t child = fork();
    if (child == 0) {
        sigaction(SIGINT, &before_int, nullptr);
        sigaction(SIGQUIT, &before_quit, nullptr);
        _exit(become(kName, path, program, environment));
    }
    if (child < 0) {
        complain(kName, std::string("no process can be started: ") + strerror(errno));
        return kOwnFailure;
    }
    g_child = child;
    sigaction(SIGTERM, &pass_on, nullptr);
    sigaction(SIGHUP, &pass_on, nullptr);
    int status = 0;
    while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
    }
    g_child = 0;
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

size_t print_findings(const Summary &summary) {
    Table changed({{"segment"},
                   {"buffer"},
                   {"replays", Table::Align::kRight},
                   {"bytes changed", Table::Align::kRight},
                   {"least", Table::Align::kRight},
                   {"most", Table::Align::kRight}});
    size_t count = 0;
    for (const auto &[name, segment] : summary.segments) {
        for (const auto &[buffer, finding] : segment.findings) {
            changed.add({printable(name), printable(buffer), human_count(finding.replays), human_bytes(static_cast<double>(finding.bytes)),
                         human_bytes(static_cast<double>(finding.least)), human_bytes(static_cast<double>(finding.most))});
            ++count;
        }
    }
    if (count != 0) {
        printf("Replayed on changed state: the gradients of these segments are not those of their forward.\n\n%s\nWhat to do: %s.\n",
               changed.text("  ").c_str(), remedy_for("audit", "").c_str());
    }
    for (const auto &[name, segment] : summary.segments) {
        for (const auto &[reason, times] : segment.reasons) {
            printf("%sSegment '%s', %s: %s\nWhat to do: %s.\n", count == 0 ? "" : "\n", printable(name).c_str(),
                   plural(times, "time").c_str(), printable(reason).c_str(), remedy_for("rejection", reason).c_str());
            ++count;
        }
    }
    return count;
}

int audit(const std::vector<std::string> &program, JobOptions &options, bool json) {
    Scratch scratch;
    if (scratch.path().empty()) {
        complain(kName, std::string("no folder for temporary files (") + strerror(errno) + "): set TMPDIR to one that can be written");
        return kOwnFailure;
    }
    if (options.records.empty()) options.records = scratch.path() + "/records";
    if (options.report.empty()) options.report = scratch.path() + "/report";
    options.policy = "audit";
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

    size_t findings = 0;
    if (json) {
        const Json result = findings_json(summary, forwards, replays, status);
        findings = result["findings"].size();
        puts(result.dump(2, ' ', false, Json::error_handler_t::replace).c_str());
    } else {
        findings = print_findings(summary);
        if (findings == 0 && replays != 0)
            printf("No replay ran on changed state (%s of %s).\n", plural(replays, "replay").c_str(),
                   plural(summary.segments.size(), "segment").c_str());
    }
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
    return findings != 0 ? 1 : 0;
}

}  // namespace

void add_audit(Invocation &invocation) {
    CLI::App *command = invocation.app->add_subcommand(
        "audit", "run a command and say which segments replay on changed state: reprise audit [options] -- COMMAND...");
    auto options = std::make_shared<JobOptions>();
    auto json = std::make_shared<bool>(false);
    add_job_options(*command, *options, false);
    command->add_flag("--json", *json, "findings as JSON");
    command->prefix_command();
    command->footer(
        "Nothing of the job is changed. Exit status: the command's own when it failed; else 1 when there are findings, 0 when there are "
        "none;\n"
        "127, 126 and 125 as for reprise run. The findings come on standard output, after the command's own.");
    command->callback([&invocation, command, options, json] {
        if (take_program(invocation, *command)) invocation.status = audit(invocation.program, *options, *json);
    });
}

}  // namespace reprise::cli
