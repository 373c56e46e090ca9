import unittest

from calculator import evaluate


class CalculatorTest(unittest.TestCase):
    def test_products_bind_tighter_than_sums(self):
        self.assertEqual(evaluate("2 + 3 * 4"), 14)

    def test_parentheses(self):
        self.assertEqual(evaluate("(2 + 3) * 4"), 20)

    def test_minus_in_front(self):
        self.assertEqual(evaluate("-2 * -(1 + 2)"), 6)

    def test_differences_are_taken_from_the_left(self):
        self.assertEqual(evaluate("10 - 4 - 3"), 3)

    def test_nonsense_is_refused(self):
        for text in ("2 +", "(1", "1 1", "two"):
            with self.subTest(text), self.assertRaises(ValueError):
                evaluate(text)


if __name__ == "__main__":
    unittest.main()
