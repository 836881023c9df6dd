// reprise completion: the shell's completion, made from the same application that parses the command line, so that it cannot be out of
// date.
#include <cstdio>
#include <memory>

#include "cli/commands.h"
#include "cli/job.h"

namespace reprise::cli {
namespace {

std::string join(const std::vector<std::string> &words) {
    std::string text;
    for (const std::string &word : words) text += (text.empty() ? "" : " ") + word;
    return text;
}

const char kHead[] = R"(# bash completion for reprise: put it into /etc/bash_completion.d, or: source <(reprise completion bash)
_reprise() {
    local word=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD-1]} command=${COMP_WORDS[1]} i
    if [ "$COMP_CWORD" = 1 ]; then
        COMPREPLY=($(compgen -W "@COMMANDS@ --help --version" -- "$word"))
        return
    fi
    case $command in
        run | audit)
            for ((i = 2; i < COMP_CWORD; ++i)); do
                if [ "${COMP_WORDS[i]}" = -- ]; then
                    if declare -F _command_offset >/dev/null; then
                        _command_offset $((i + 1))
                    elif [ $((i + 1)) = "$COMP_CWORD" ]; then
                        COMPREPLY=($(compgen -c -- "$word"))
                    else
                        COMPREPLY=($(compgen -f -- "$word"))
                    fi
                    return
                fi
            done ;;
    esac
    case $before in
)";

const char kMiddle[] =
    R"(        --records | --report | --plan | --save-plan | --library | --python | --svg | --png | -o | --output) COMPREPLY=($(compgen -f -- "$word")); return ;;
    esac
    case $command in
)";

const char kTail[] = R"(    esac
    case $word in -*) ;; *) COMPREPLY+=($(compgen -f -- "$word")) ;; esac
}
complete -o filenames -F _reprise reprise
)";

std::string script(const CLI::App &app) {
    std::string names, cases;
    for (const CLI::App *command : app.get_subcommands([](const CLI::App *) { return true; })) {
        names += (names.empty() ? "" : " ") + command->get_name();
        std::string options;
        for (const CLI::Option *option : command->get_options()) {
            for (const std::string &name : option->get_lnames()) options += (options.empty() ? "--" : " --") + name;
            for (const std::string &name : option->get_snames()) options += (options.empty() ? "-" : " -") + name;
        }
        if (command->get_name() == "run" || command->get_name() == "audit") options += " --";
        if (command->get_name() == "completion") options += " bash";
        cases += "        " + command->get_name() + ") COMPREPLY=($(compgen -W \"" + options + "\" -- \"$word\")) ;;\n";
    }
    std::string values;
    const std::pair<const char *, const std::vector<std::string> *> choices[] = {
        {"--policy", &kPolicies},      {"--verify", &kVerifies}, {"--on-reject", &kOnRejects},        {"--dirty", &kDirtySources},
        {"--reentrant", &kReentrants}, {"--log", &kLogs},        {"--on-infeasible", &kOnInfeasibles}};
    for (const auto &[option, list] : choices) {
        values += std::string("        ") + option + ") COMPREPLY=($(compgen -W \"" + join(*list) + "\" -- \"$word\")); return ;;\n";
    }
    std::string head = kHead;
    const std::string mark = "@COMMANDS@";
    head.replace(head.find(mark), mark.size(), names);
    return head + values + kMiddle + cases + kTail;
}

}  // namespace

void add_completion(Invocation &invocation) {
    CLI::App *command =
        invocation.app->add_subcommand("completion", "print the completion script of a shell: source <(reprise completion bash)");
    auto shell = std::make_shared<std::string>();
    command->add_option("SHELL", *shell, "bash")->required()->check(CLI::IsMember({"bash"}))->type_name("");
    command->callback([&invocation, shell] { fputs(script(*invocation.app).c_str(), stdout); });
}

}  // namespace reprise::cli
