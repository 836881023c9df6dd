// Real programs with and without the preload: the same stdout, stderr, exit status and output files.
#include <gtest/gtest.h>

#include <filesystem>
#include <map>
#include <string>

#include "child_process.h"
#include "paths.h"

namespace {

namespace fs = std::filesystem;

std::map<std::string, std::string> files_of(const std::string &folder) {
    std::map<std::string, std::string> files;
    for (const auto &entry : fs::recursive_directory_iterator(folder))
        if (entry.is_regular_file()) files[fs::relative(entry.path(), folder).string()] = read_text(entry.path().string());
    return files;
}

// Runs the script in two equal folders, with the preload in the second.
void expect_identical(const std::map<std::string, std::string> &inputs, const std::string &script, bool compare_files = true) {
    TemporaryFolder plain, hooked;
    ChildResult results[2];
    for (int i = 0; i < 2; ++i) {
        TemporaryFolder &folder = i == 0 ? plain : hooked;
        // The same path for both, so that outputs which name it agree.
        const std::string work = folder / "work";
        fs::create_directories(work);
        for (const auto &[name, text] : inputs) write_text(work + "/" + name, text);
        ChildOptions options;
        options.directory = work;
        options.timeout_s = 280;
        options.environment = {{"LC_ALL", "C"}, {"TZ", "UTC"}, {"HOME", "."}, {"GIT_CONFIG_NOSYSTEM", "1"}, {"PYTHONHASHSEED", "0"}};
        for (const char *who : {"AUTHOR", "COMMITTER"}) {
            options.environment[std::string("GIT_") + who + "_NAME"] = "a";
            options.environment[std::string("GIT_") + who + "_EMAIL"] = "a@b";
            options.environment[std::string("GIT_") + who + "_DATE"] = "2020-01-01T00:00:00Z";
        }
        if (i == 1) {
            options.environment["LD_PRELOAD"] = kPreload;
            options.environment["REPRISE_LOG"] = "error";  // an interpreter that attaches nothing says so; nothing else may differ
        }
        results[i] = run_child({"sh", "-ec", script}, options);
    }
    EXPECT_EQ(results[0].exit_code, 0) << describe(results[0]);
    EXPECT_EQ(results[1].exit_code, results[0].exit_code) << describe(results[1]);
    EXPECT_EQ(results[1].out, results[0].out);
    EXPECT_EQ(results[1].err, results[0].err);
    if (!compare_files) return;
    const auto expected = files_of(plain / "work");
    const auto got = files_of(hooked / "work");
    EXPECT_EQ(expected.size(), got.size());
    for (const auto &[name, content] : expected) EXPECT_TRUE(got.count(name) && got.at(name) == content) << name;
}

std::string large_source() {
    std::string source = "#include <map>\n#include <string>\n#include <vector>\n#include <algorithm>\n#include <regex>\n";
    for (int i = 0; i < 25; ++i) {
        const std::string n = std::to_string(i);
        source += "struct S" + n + " { int a; std::map<std::string, std::vector<S" + n + ">> m; int f(int x) const { return a * x + " + n +
                  "; } };\n" + "int g" + n + "(std::vector<S" + n +
                  "> v) { std::sort(v.begin(), v.end(), [](auto &x, auto &y) { return x.f(" + n +
                  ") < y.f(2); }); return v.empty() ? 0 : v[0].f(int(v[0].m.size())); }\n";
    }
    return source;
}

std::string text_of(size_t lines) {
    std::string text;
    unsigned seed = 1;
    for (size_t i = 0; i < lines; ++i) {
        seed = seed * 1664525u + 1013904223u;
        text += "line " + std::to_string(i) + " value " + std::to_string(seed >> 8) + "\n";
    }
    return text;
}

TEST(Programs, Compiler) {
    expect_identical({{"large.cpp", large_source()}}, std::string(kCxx) + " -std=c++17 -O1 -frandom-seed=1 -c large.cpp -o large.o 2>&1");
}
TEST(Programs, CompilerErrors) {
    expect_identical({{"bad.cpp", "int main() { return undeclared + 1 }\n"}}, "! " + std::string(kCxx) + " -c bad.cpp");
}
TEST(Programs, Git) {
    expect_identical(
        {{"a.txt", text_of(20000)}, {"b/c.txt", text_of(500)}},
        "git init -q -b main r; cp -r a.txt b r/; cd r; git add .; git commit -qm one; sed -i 's/value 1/value 2/' a.txt; git diff --stat; "
        "git commit -qam two; git log --format='%H %s'; git gc -q; git fsck 2>&1; git grep -c 'value 22' HEAD",
        false);
}
TEST(Programs, Python) {
    expect_identical({{"job.py",
                       "import json, sys, re, threading, subprocess, zlib, decimal\n"
                       "data = {str(i): [i] * (i % 50) for i in range(20000)}\n"
                       "text = json.dumps(data)\n"
                       "assert json.loads(text) == data\n"
                       "print(zlib.crc32(zlib.compress(text.encode())))\n"
                       "out = []\n"
                       "threads = [threading.Thread(target=lambda n=n: out.append(sum(len(re.findall('9', str(k))) for k in range(n)))) "
                       "for n in (10000, 20000)]\n"
                       "[t.start() for t in threads]; [t.join() for t in threads]\n"
                       "print(sorted(out), bytearray(5_000_000).count(0), decimal.Decimal(2).sqrt())\n"
                       "print(subprocess.run(['echo', 'child'], capture_output=True, text=True).stdout, file=sys.stderr)\n"
                       "open('out.bin', 'wb').write(text.encode() * 3)\n"}},
                     std::string(kPython) + " job.py");
}
TEST(Programs, Perl) {
    expect_identical({{"in.txt", text_of(50000)}},
                     "perl -ne '$h{$1}++ if /value (\\d\\d)/; END { print \"$_ $h{$_}\\n\" for sort keys %h }' in.txt; "
                     "perl -e 'print join(\",\", map { $_ ** 2 } 1..1000), \"\\n\"; warn \"to stderr\\n\"'");
}
TEST(Programs, Sqlite) {
    expect_identical(
        {},
        "sqlite3 db.sqlite \"create table t(a integer primary key, b text); with recursive c(x) as (select 1 union all select x+1 from c "
        "where x < 100000) insert into t select x, hex(x * 7919) from c; create index i on t(b); select count(*), sum(length(b)) from t; "
        "select a from t where b like '3%' order by b desc limit 5; delete from t where a % 3 = 0; vacuum; pragma integrity_check;\"");
}
TEST(Programs, TarAndXz) {
    expect_identical(
        {{"d/a.txt", text_of(100000)}, {"d/e/b.txt", text_of(1000)}},
        "tar --sort=name --mtime=@0 --owner=0 --group=0 --numeric-owner -cf a.tar d; xz -T2 -3 -k a.tar; xz -tv a.tar.xz 2>/dev/null; "
        "mkdir x; tar -xJf a.tar.xz -C x; rm a.tar; cmp d/a.txt x/d/a.txt; tar -tvf a.tar.xz; xz --list --robot a.tar.xz");
}
TEST(Programs, ShellPipelines) {
    expect_identical({{"in.txt", text_of(30000)}},
                     "sort -R --random-source=in.txt in.txt | sort -n -k4 | uniq -c | awk '{ s += $5 } END { print s }'; "
                     "find . -name '*.txt' | xargs grep -c value; env -u LD_PRELOAD true; ls missing 2>&1 || true");
}

}  // namespace
