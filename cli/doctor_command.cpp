// reprise doctor: what this machine allows, each thing tried, with the remedy for what is missing.
#include <algorithm>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>

#include "cli/commands.h"
#include "cli/doctor.h"
#include "cli/place.h"
#include "cli/text.h"

namespace reprise::cli {
namespace {

struct Options {
    std::string library, python;
    bool json = false, quick = false, no_python = false;
};

const char *word(Health health) {
    switch (health) {
        case Health::kGood:
            return "ok";
        case Health::kNote:
            return "note";
        case Health::kLimited:
            return "limited";
        case Health::kBroken:
            break;
    }
    return "broken";
}

std::string shown(const Measure &measure) {
    if (measure.unit == "ns") return human_duration(measure.value);
    if (measure.unit == "share") return human_share(measure.value);
    return format("%.1f %s", measure.value, measure.unit.c_str());
}

int doctor(const Options &options) {
    Diagnosis diagnosis;
    examine_kernel(diagnosis);
    examine_limits(diagnosis);
    const Place place = find_library(options.library);
    if (place.library.empty()) {
        diagnosis.add("preload", Health::kBroken, place.problem);
    } else {
        examine_preload(diagnosis, place.library);
        if (!options.no_python) examine_python(diagnosis, place.library, options.python);
    }
    examine_gpu(diagnosis);
    if (!options.quick) measure_costs(diagnosis);

    Health worst = Health::kGood;
    for (const Symptom &symptom : diagnosis.findings) worst = std::max(worst, symptom.health);
    const int status = worst == Health::kBroken ? 2 : worst == Health::kLimited ? 1 : 0;
    const char *const verdict = status == 0 ? "fine" : status == 1 ? "works with limits" : "cannot work";
    if (options.json) {
        nlohmann::json json = {{"schema", "reprise.doctor/1"},
                               {"status", status},
                               {"verdict", verdict},
                               {"findings", nlohmann::json::array()},
                               {"costs", nlohmann::json::array()}};
        for (const Symptom &s : diagnosis.findings)
            json["findings"].push_back({{"name", s.name}, {"health", word(s.health)}, {"detail", s.detail}, {"remedy", s.remedy}});
        for (const Measure &m : diagnosis.measures)
            json["costs"].push_back({{"name", m.name}, {"value", m.value}, {"unit", m.unit}, {"what", m.what}});
        puts(json.dump(2, ' ', false, nlohmann::json::error_handler_t::replace).c_str());
        return status;
    }
    for (const Symptom &s : diagnosis.findings) {
        printf("%-8s %-18s %s\n", word(s.health), s.name.c_str(), s.detail.c_str());
        if (!s.remedy.empty()) printf("%-8s %-18s -> %s\n", "", "", s.remedy.c_str());
    }
    if (!diagnosis.measures.empty()) {
        Table table({{"cost"}, {"measured", Table::Align::kRight}, {"of what"}});
        for (const Measure &m : diagnosis.measures) table.add({m.name, shown(m), m.what});
        printf("\n%s", table.text().c_str());
    }
    printf("\nReprise: %s\n", verdict);
    return status;
}

}  // namespace

void add_doctor(Invocation &invocation) {
    CLI::App *command =
        invocation.app->add_subcommand("doctor", "try what this kernel, container, GPU and Python allow, and say what to do");
    auto options = std::make_shared<Options>();
    command->add_flag("--json", options->json, "as JSON");
    command->add_flag("--quick", options->quick, "without the measured costs");
    command->add_option("--python", options->python, "the Python of the jobs (default: python3 on PATH)")->type_name("PATH");
    command->add_flag("--no-python", options->no_python, "without Python and torch");
    command->add_option("--library", options->library, "libreprise.so (default: the one that belongs to this command)")->type_name("PATH");
    command->footer("Exit status: 0 fine, 1 works with limits, 2 cannot work.");
    command->callback([&invocation, options] { invocation.status = doctor(*options); });
}

}  // namespace reprise::cli
