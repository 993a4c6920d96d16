"""Which sources may be compiled together: python3 unity_groups_test.py (cmake/ on PYTHONPATH)."""
import os
import tempfile
import unittest

from unity_groups import grouped, private_names, without_noise


def names(text):
    return private_names(without_noise(text))


class PrivateNames(unittest.TestCase):
    def test_functions_types_constants_and_enumerators(self):
        text = """// namespace { int no; }
        namespace p { namespace {
        enum Slot : int { kFirst, kSecond = 2 };
        enum class Named { inner };
        template <class T, int N = (1 << 2)> std::vector<T> made(const T& x) { int local = 1'000; return {x, "}{"}; }
        struct Row final : Base { int member; void act() { other(); } };
        constexpr Entry kTable[] = {{"a", 1}};
        using Map = std::map<int, int>;
        }  // namespace
        constexpr int kOwn = 3;
        int everybodys(int x) { return x; }
        }"""
        found = names(text)
        for name in ("Slot", "kFirst", "kSecond", "Named", "made", "Row", "kTable", "Map", "kOwn"):
            self.assertIn(name, found)
        for name in ("no", "local", "member", "act", "other", "everybodys"):
            self.assertNotIn(name, found)


class Groups(unittest.TestCase):
    def groups(self, *texts, most=1000):
        with tempfile.TemporaryDirectory() as folder:
            paths = []
            for number, text in enumerate(texts):
                paths.append(os.path.join(folder, f"{number}.cpp"))
                with open(paths[-1], "w", encoding="utf-8") as file:
                    file.write(text)
            return [[os.path.basename(path)[0] for path in group.sources] for group in grouped(paths, most)]

    def test_one_name_twice_is_kept_apart(self):
        one = "namespace { int take(int x) { return x; } }\n"
        self.assertEqual(self.groups(one, one), [["0"], ["1"]])

    def test_a_private_name_that_another_source_uses_is_kept_apart(self):
        self.assertEqual(self.groups("namespace { int take(int x) { return x; } }\n", "int give() { return take(1L); }\n", "int free_of_it;\n"), [["0", "2"], ["1"]])

    def test_a_source_with_a_macro_is_alone(self):
        self.assertEqual(self.groups("#define take 1\n", "int a;\n", "int b;\n"), [["1", "2"]])

    def test_an_alias_may_stand_twice_where_it_is_the_same(self):
        json, ordered = "namespace { using Json = a::Json; }\n", "namespace { using Json = a::Ordered; }\n"
        self.assertEqual(self.groups(json, ordered, json), [["0", "2"], ["1"]])
        self.assertEqual(self.groups("namespace { using a::b; }\n", "namespace { using c::b; }\n", "int x = b();\n"), [["0"], ["1"], ["2"]])

    def test_tests_are_no_names_and_what_they_share_is(self):
        self.assertEqual(self.groups("TEST(A, B) { give(); }\n", "namespace { TEST_F(A, C) {} }\n", "namespace { int give() { return 1; }\nTEST(A, D) {} }\n"),
                         [["0", "1"], ["2"]])

    def test_a_group_has_an_end(self):
        self.assertEqual(self.groups("int a;\n" * 6, "int b;\n" * 6, "int c;\n" * 3, most=10), [["0", "2"], ["1"]])


if __name__ == "__main__":
    unittest.main()
