"""What the numbers were taken on."""

import os
import platform
import subprocess


def _read(path, default=""):
    try:
        with open(path) as file:
            return file.read().strip()
    except OSError:
        return default


def _chosen(text):
    return text[text.find("[") + 1 : text.find("]")] if "[" in text else text


def describe():
    model = next((line.split(":", 1)[1].strip() for line in _read("/proc/cpuinfo").splitlines() if line.startswith("model name")), platform.machine())
    memory = next((int(line.split()[1]) for line in _read("/proc/meminfo").splitlines() if line.startswith("MemTotal")), 0)
    flags = next((line for line in _read("/proc/cpuinfo").splitlines() if line.startswith("flags")), "")
    return {
        "cpu": model,
        "cpus": len(os.sched_getaffinity(0)),
        "virtual": " hypervisor" in flags,
        "memory_gib": round(memory / 2**20, 1),
        "kernel": platform.release(),
        "libc": " ".join(platform.libc_ver()),
        "huge_pages": _chosen(_read("/sys/kernel/mm/transparent_hugepage/enabled", "none")),
        "load": round(os.getloadavg()[0], 2),
    }


def available_bytes():
    for line in _read("/proc/meminfo").splitlines():
        if line.startswith("MemAvailable"):
            return int(line.split()[1]) * 1024
    return 0


def revision(root):
    run = lambda *a: subprocess.run(["git", *a], cwd=root, capture_output=True, text=True).stdout.strip()  # noqa: E731
    commit = run("rev-parse", "--short=12", "HEAD")
    return commit + (" with changes" if commit and run("status", "--porcelain", "--untracked-files=no") else "")
