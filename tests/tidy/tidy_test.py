#!/usr/bin/env python3
"""Each rule must fire on the smallest file that breaks it, and stay quiet on the same file put right."""
import pathlib
import tempfile
import unittest

import tidy

ONCE = "#pragma once\n"
CASES = [  # rule, path, wrong, right
    ("arrow", "proto/ir/a.cc", "#include <tilewise/msg/m.h>\n", "#include <tilewise/base/b.h>\n"),
    ("arrow", "scheduler/core/a.cc", '#include "tilewise/net/n.h"\n', "// #include <tilewise/net/n.h>\n"),
    ("arrow", "kernels/map/a.cc", "#include <tilewise/store/s.h>\n", "#include <tilewise/device/d.h>\n"),
    ("core-is-pure", "worker/core/a.cc", "#include <thread>\n", "#include <span>\n"),
    ("core-is-pure", "scheduler/place/a.cc", "#include <boost/asio/post.hpp>\n", "#include <boost/container/vector.hpp>\n"),
    ("core-shares-nothing", "scheduler/core/a.cc", "std::shared_ptr<int> p;\n", "int p;  // no shared_ptr\n"),
    ("asio-in-net", "worker/runtime/a.cc", "#include <boost/asio.hpp>\n", "#include <tilewise/msg/m.h>\n"),
    ("capnp-in-codec", "client/core/a.cc", "#include <capnp/message.h>\n", "#include <tilewise/codec/c.h>\n"),
    ("ucx-in-transfer", "worker/daemon/a.cc", "#include <ucp/api/ucp.h>\n", "#include <tilewise/transfer/t.h>\n"),
    ("cuda-in-device", "worker/runtime/a.cc", "#include <cuda_runtime.h>\n", "#include <tilewise/device/d.h>\n"),
    ("no-using-namespace", "proto/base/a.h", ONCE + "using namespace std;\n", ONCE + "using std::size_t;\n"),
    ("no-printing", "proto/base/a.cc", 'std::printf("x");\n', 'std::snprintf(b, 1, "x");\n'),
    ("no-deferred-work", "docs/a.md", "TO" + "DO later\n", "to do\n"),
    ("no-local-paths", "docs/a.md", "in /ho" + "me/ann/x\n", "in build/release/x\n"),
    ("pragma-once", "proto/base/a.h", "int x;\n", ONCE),
    ("long-file", "proto/base/a.cc", "\n" * 701, "\n" * 700),
    ("ordered-iteration", "worker/core/a.cc", "std::unordered_map<int, Vec<int>> m_;\nfor (auto& x : m_) {}\n",
     "std::map<int, int> m_;\nfor (auto& x : m_) {}\n"),
    ("ordered-iteration", "scheduler/core/a.cc", "boost::unordered_flat_set<int> s_;\nf(s_.begin(), s_.end());\n",
     "boost::unordered_flat_set<int> s_;\nf(s_.find(3) == s_.end());\n"),
]


class Tidy(unittest.TestCase):
    def fired(self, path, text):
        with tempfile.TemporaryDirectory() as folder:
            root = pathlib.Path(folder)
            (root / path).parent.mkdir(parents=True)
            (root / path).write_text(text)
            return {rule for rule, *_ in tidy.violations(root) if rule != "readme"}

    def test_each_rule_fires_and_is_silenced_by_the_right_way(self):
        for rule, path, wrong, right in CASES:
            with self.subTest(rule=rule, path=path):
                self.assertIn(rule, self.fired(path, wrong))
                self.assertEqual(set(), self.fired(path, right))

    def test_every_line_rule_has_a_case(self):
        self.assertLessEqual({rule for rule, *_ in tidy.LINES}, {rule for rule, *_ in CASES})

    def test_a_folder_may_include_its_own_headers(self):
        with tempfile.TemporaryDirectory() as folder:
            root = pathlib.Path(folder)
            (root / "scheduler/plan/include/tilewise/plan").mkdir(parents=True)
            (root / "scheduler/plan/include/tilewise/plan/p.h").write_text(ONCE)
            (root / "scheduler/plan/p.cc").write_text("#include <tilewise/plan/p.h>\n")
            self.assertEqual(["readme"], [rule for rule, *_ in tidy.violations(root)])


if __name__ == "__main__":
    unittest.main()
