#!/usr/bin/env python3
"""The house rules of this repository, as a test. Every message names what to write instead.

usage: tidy.py [ROOT]

Rules are the tables below. `ratchet.txt` lists the violations that are tolerated for now; it only shrinks.
"""
import collections
import pathlib
import re
import subprocess
import sys

# Which `<tilewise/PART/...>` a folder may include, beside its own parts. Folders not listed wire things together in
# main() or test them, and may include anything. The longest matching folder counts.
ARROWS = {
    "proto/base": "",
    "proto/ir": "base",
    "proto/msg": "ir base",
    "proto/codec": "msg ir base",
    "proto/net": "base",
    "proto/courier": "net codec msg ir base",
    "proto/json": "base",
    "object_store/device": "base",
    "object_store/alloc": "base",
    "object_store/store": "alloc device base",
    "object_store/transfer": "device alloc store net base",
    "object_store/io": "base ir device json",
    "kernels": "ir device base",
    "kernels/cuda": "kernels ir device cuda base",
    "kernels/file": "kernels ir device io base",
    "scheduler/plan": "ir msg base",
    "scheduler/place": "ir msg base",
    "scheduler/core": "plan place ir msg base",
    "scheduler/journal": "base",
    "scheduler/dashboard": "scheduler config json net msg ir base",
    "worker/core": "ir msg alloc base",
    "worker/runtime": "worker msg ir base device alloc store transfer io kernels",
    "client/core": "ir msg codec net transfer base",
}
CORES = r"(scheduler/(plan|place|core)|worker/core)/"
CODE = r"\.(h|cc|cu|cuh)$"
# Highway's -inl.h are included once an instruction set, .cuh is text for NVRTC, _abi.h is C for other people.
HEADER = r"(?<!-inl)(?<!_abi)\.h$"
TEXT = r"(\.(h|cc|cu|cuh|capnp|py|md|txt|cmake|in|json|sh|yml|yaml|toml|service)|/run|^dev)$"
TESTS = r"^(tests|examples)/|_test\.cc$"
NONE = r"(?!)"

# (rule, files it is about, files it is not about, what must not stand on a line, what to do instead).
# Comments are removed from code before the search, except for rules about text.
LINES = [
    ("core-is-pure", "^" + CORES + ".*" + CODE, r"_test\.cc$",
     r'#\s*include\s*[<"](boost/(asio|beast)|capnp/|kj/|cuda|ucp/|ucs/|'
     r"(thread|mutex|shared_mutex|condition_variable|future|atomic|chrono|random|iostream)>)",
     "a core takes events and `now` and returns actions: do this in the daemon, and pass in the result"),
    ("core-shares-nothing", "^" + CORES + ".*" + CODE, NONE, r"\b(std::)?(shared_ptr|weak_ptr|make_shared)\b",
     "keep the object in one dense table and pass its id"),
    ("asio-in-net", CODE, r"^(proto/net|scheduler/(daemon|dashboard)|worker/daemon|client|tests|examples)/",
     r'#\s*include\s*[<"]boost/(asio|beast)', "use the links of <tilewise/net/...>"),
    ("capnp-in-codec", CODE, r"^(proto/codec|tests)/", r'#\s*include\s*[<"](capnp|kj)/',
     "use the plain structs of <tilewise/msg/...>; proto/codec turns them into bytes"),
    ("ucx-in-transfer", CODE, r"^(object_store/transfer|tests)/", r'#\s*include\s*[<"](ucp|ucs|uct)/',
     "use <tilewise/transfer/...>"),
    ("cuda-in-device", CODE, r"^(object_store/device|kernels|tests/gpu)/",
     r'#\s*include\s*[<"](cuda|cublas|cusolver|cufft|nvrtc|cub/)', "use <tilewise/device/...>"),
    ("no-using-namespace", HEADER, NONE, r"^using\s+namespace\b", "name what you use; `namespace x = long::name`"),
    ("no-printing", CODE, r"^(client/cli|examples|tests)/|/bench/|^proto/base/check\.cc$|/main\.cc$|_test\.cc$",
     r"\bstd::(cout|cerr)\b|\b(std::)?(printf|fprintf|puts|fputs)\s*\(",
     "return a Result, or log through spdlog in a daemon"),
    ("no-deferred-work", TEXT, NONE, r"\b(T[O]DO|F[I]XME|X[X]X)\b", "do it now, or open an issue"),
    ("no-local-paths", TEXT, NONE, r"(?<![\w.}])/([w]ork|[h]ome|[r]oot)/\w",
     "write a path relative to the repository, or take it from the environment"),
]
NEEDS_README = ["proto", "object_store", "kernels", "scheduler", "worker", "client", "tests", "deploy", "examples",
                "docs"]
MAX_LINES = 700


def without_comments(text):
    """Blanks comments out, keeping line numbers; string literals survive."""
    pattern = r'//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\''
    blank = lambda m: m[0] if m[0][0] in "\"'" else re.sub(r"[^\n]", " ", m[0])
    return re.sub(pattern, blank, text, flags=re.S)


def line_rules(path, text, code):
    for rule, about, exempt, forbidden, instead in LINES:
        if not re.search(about, path) or re.search(exempt, path):
            continue
        source = text if about == TEXT else code
        for number, line in enumerate(source.splitlines(), 1):
            if match := re.search(forbidden, line):
                yield rule, path, number, f"`{match[0].strip()}`: {instead}"


def file_rules(path, text, code):
    if re.search(HEADER, path) and not re.search(r"^#pragma once$", code, flags=re.M):
        yield "pragma-once", path, 1, "a header starts with `#pragma once`"
    if re.search(CODE + "|" + TEXT, path) and text.count("\n") > MAX_LINES:
        yield "long-file", path, text.count("\n"), f"over {MAX_LINES} lines: split it by what a reader looks for"


def arrows(files):
    own = collections.defaultdict(set)  # the parts whose headers a folder holds
    for path in files:
        if match := re.match(r"(.*?)/?include/tilewise/([^/]+)/", path):
            own[match[1]].add(match[2])
    for path, (_, code) in files.items():
        folder = max((f for f in ARROWS if path.startswith(f + "/")), key=len, default=None)
        if folder is None or not re.search(CODE, path):
            continue
        allowed = set(ARROWS[folder].split())
        for holder, parts in own.items():
            if (holder + "/").startswith(folder + "/"):
                allowed |= parts
        for number, line in enumerate(code.splitlines(), 1):
            match = re.match(r'\s*#\s*include\s*[<"]tilewise/([^/]+)/', line)
            if match and match[1] not in allowed:
                yield ("arrow", path, number, f"{folder} may not use `{match[1]}` (only: {ARROWS[folder] or 'std'}): "
                       "move what both need down, or pass it in as data")


def unordered_iteration(files):
    """Ranging over a hash table in a core: the order would depend on the hash, and two runs would differ."""
    names = collections.defaultdict(set)
    declared = r"\bunordered_(?:flat_|node_)?(?:map|set)\s*<[^;]*?>\s+(\w+)\s*[;={]"
    for path, (_, code) in files.items():
        if match := re.match(CORES, path):
            names[match[0]] |= set(re.findall(declared, code))
    for path, (_, code) in files.items():
        match = re.match(CORES, path)
        if not match or not names[match[0]]:
            continue
        table = "|".join(sorted(names[match[0]]))
        loop = re.compile(rf"\bfor\s*\([^;()]*:\s*[\w.>()-]*\b({table})\s*\)|\b({table})\.begin\(\)")
        for number, line in enumerate(code.splitlines(), 1):
            if found := loop.search(line):
                yield ("ordered-iteration", path, number, f"`{found[1] or found[2]}` is a hash table: iterate over a "
                       "vector indexed by id, a std::map, or sorted keys")


def readmes(root):
    for folder in NEEDS_README:
        if (root / folder).is_dir() and not (root / folder / "README.md").is_file():
            yield "readme", folder, 1, f"write {folder}/README.md: a page on what is in here and how it fits"


def load(root):
    """Tracked and new files that git does not ignore; without git, all outside build/."""
    listing = subprocess.run(["git", "-c", "safe.directory=*", "ls-files", "-co", "--exclude-standard"], cwd=root,
                             stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    names = listing.stdout.splitlines() if listing.returncode == 0 else [
        p.relative_to(root).as_posix() for p in root.rglob("*") if p.is_file()]
    files = {}
    for name in sorted(set(names)):
        if re.match(r"(build|\.git)/", name) or not re.search(CODE + "|" + TEXT, name):
            continue
        if (root / name).is_file():
            text = (root / name).read_text(errors="replace")
            files[name] = (text, without_comments(text) if re.search(CODE, name) else text)
    return files


def violations(root):
    files = load(root)
    for path, (text, code) in files.items():
        yield from line_rules(path, text, code)
        yield from file_rules(path, text, code)
    yield from arrows(files)
    yield from unordered_iteration(files)
    yield from readmes(root)


def ratchet(root):
    path = root / "tests/tidy/ratchet.txt"
    lines = path.read_text().splitlines() if path.is_file() else []
    entries = (line.split() for line in lines if line.strip() and not line.startswith("#"))
    return {(rule, name): int(count) for rule, name, count in entries}


def main(root):
    found = collections.defaultdict(list)
    for rule, path, number, message in violations(root):
        found[rule, path].append((number, message))
    tolerated = ratchet(root)
    failures = 0
    for (rule, path), places in sorted(found.items()):
        count = places[0][0] if rule == "long-file" else len(places)
        if count <= tolerated.pop((rule, path), 0):
            continue
        failures += len(places)
        for number, message in places:
            print(f"{path}:{number}: [{rule}] {message}")
    for rule, path in sorted(tolerated):
        if (rule, path) not in found:
            print(f"note: tests/tidy/ratchet.txt no longer needs `{rule} {path}`: remove the line")
    print(f"tidy: {failures} violations" if failures else "tidy: clean")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main(pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else pathlib.Path(__file__).parents[2]).resolve()))
