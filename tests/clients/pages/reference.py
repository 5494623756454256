"""What others keep of real pages, for the test of the extraction.

The archives of two Python packages hold pages that were saved for tests of their own. Their folders are unpacked into `saved`, and
`reference.json` gets what trafilatura and readability take for the main text of each.
"""

import glob
import json
import os
import tarfile

import lxml.html
import trafilatura
from readability import Document

FOLDERS = ("tests/cache/", "tests/data/html/")


def unpack():
    os.makedirs("saved", exist_ok=True)
    for archive in glob.glob("archives/*.tar.gz"):
        with tarfile.open(archive) as files:
            for file in files:
                inside = file.name.partition("/")[2]
                # The name alone: whatever an archive says, nothing is written elsewhere.
                if file.isfile() and inside.startswith(FOLDERS) and inside.endswith(".html"):
                    with open(os.path.join("saved", os.path.basename(inside)), "wb") as page:
                        page.write(files.extractfile(file).read())


def kept(page):
    """The main text by both."""
    by_trafilatura = trafilatura.extract(page, include_comments=True, include_tables=True) or ""
    try:
        summary = Document(trafilatura.utils.decode_file(page)).summary()
        by_readability = lxml.html.fromstring(summary).text_content()
    except Exception:
        by_readability = ""
    return {"trafilatura": by_trafilatura, "readability": by_readability}


def main():
    unpack()
    reference = {}
    for path in sorted(glob.glob("saved/*.html")):
        # The largest are mostly scripts, and take a test that isn't optimised long.
        if os.path.getsize(path) < 250_000:
            with open(path, "rb") as page:
                reference[os.path.basename(path)] = kept(page.read())
    with open("reference.json", "w", encoding="utf-8") as file:
        json.dump(reference, file)


main()
