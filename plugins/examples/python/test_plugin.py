import tempfile
import unittest

from plugin import Counts, word_count


class WordCount(unittest.TestCase):
    def test_words_and_lines_are_counted(self):
        with tempfile.NamedTemporaryFile() as file:
            file.write(b"one two\nthree\n")
            file.flush()
            self.assertEqual(word_count(file.name), Counts(lines=2, words=3, bytes=14))

    def test_missing_file_is_an_error(self):
        with self.assertRaises(FileNotFoundError):
            word_count("/no/such/file")
