//! Compares the main text of real pages with the results of trafilatura and readability.
//!
//! The pages are not part of this repository. `cargo xtask test` fetches them, and the results of
//! both programs, into `target/clients/pages`. Text that both keep has to be kept. Text that
//! neither keeps is noise.

#[path = "../../../tests/not_tried.rs"]
mod not_tried;

use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};

use url::Url;

/// A page of each kind, and the share of noise that is accepted. Comments below an article count as
/// noise if both programs leave them out. So do other elements within the named main part of a
/// page: it is taken whole, since a lost section is worse than a line of buttons.
const PAGES: [(&str, &str, f64); 36] = [
    ("encyclopedia, with formulas", "en.wikipedia.org.tsne.html", 0.10),
    ("questions and answers, with code", "stackoverflow.com.rust.html", 0.10),
    ("blog of a programmer, with code", "gregoryszorc.com.python3.html", 0.10),
    ("blog with code and comments", "lemire.me.json.html", 0.20),
    ("tutorial", "pluralsight.com.python.html", 0.10),
    ("technical blog of a company", "caktusgroup.com.django.html", 0.10),
    ("blog of a repository host", "github.blog.spiceland.html", 0.15),
    ("release notes on Blogger", "blog.python.org.html", 0.10),
    ("blog on WordPress", "buchperlen.wordpress.com.html", 0.10),
    ("journal of science", "nature.com.telescope.html", 0.10),
    ("news of science", "phys.org.tool.html", 0.15),
    ("essay with footnotes, in French", "laviedesidees.fr.evaluation.html", 0.10),
    ("university, in French", "psl.eu.luniversite.html", 0.10),
    ("radio, in French", "franceculture.fr.idees.html", 0.10),
    ("ministry, in German", "bmjv.de.konsum.html", 0.10),
    ("transcript of a podcast", "ndr.de.podcastcoronavirus140.html", 0.10),
    ("law, with many comments", "internet-law.de.pseudonymen.html", 0.10),
    ("newspaper, in German", "spiegel.de.albtraum.html", 0.10),
    ("newspaper with teasers", "sueddeutsche.de.flixtrain.html", 0.10),
    ("magazine, in English", "vice.com.amazon.html", 0.10),
    ("news agency", "reuters.com.parasite.html", 0.10),
    ("magazine of technology", "theverge.com.ios13.html", 0.15),
    ("security news", "threatpost.com.android.html", 0.15),
    ("club, made by hand, in Latin-1", "hundeverein-kreisunna.de.html", 0.10),
    ("school parliament, in windows-1252", "cdu-fraktion-erfurt.de.waldorfschule.html", 0.10),
    ("fan site with frames of tables", "love-hina.ch.0409.html", 0.10),
    ("trade paper, in Latin-1", "landwirt.com.sensortechnik.html", 0.20),
    ("motoring club, with tables", "adac.de.kindersitze.html", 0.10),
    ("company", "fairkom.eu.about.html", 0.10),
    ("Chinese", "chinese_article.html", 0.10),
    ("Japanese", "japanese_article2.html", 0.15),
    ("Korean", "yna_co_kr.html", 0.15),
    ("Arabic", "arabic_article.html", 0.10),
    ("Thai", "thai_article.html", 0.10),
    ("Spanish", "spanish_article.html", 0.20),
    ("Latvian", "latvian_article.html", 0.15),
];

/// The smallest share of the text kept by both programs that a page has to keep.
const RECALL: f64 = 0.95;

/// The bounds of the means over all fetched pages. They include other kinds than those above: front
/// pages, galleries and pages of a few words.
const MEAN_RECALL: f64 = 0.985;
const MEAN_NOISE: f64 = 0.20;

#[test]
fn real_pages_keep_their_text_and_lose_noise() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/clients/pages");
    let Ok(reference) = fs::read_to_string(folder.join("reference.json")) else {
        not_tried::not_tried("clients/pages");
        return;
    };
    let reference: HashMap<String, HashMap<String, String>> =
        serde_json::from_str(&reference).unwrap();
    let measurements: HashMap<&str, Measurement> = reference
        .iter()
        .map(|(name, kept)| (name.as_str(), measure(&folder.join("saved").join(name), kept)))
        .collect();
    let mut failures = Vec::new();
    for (kind, name, noise) in PAGES {
        let page = &measurements[name];
        println!(
            "recall {:.3}, noise {:.3}, {} words: {kind} ({name})",
            page.recall, page.noise, page.words
        );
        if page.recall < RECALL || page.noise > noise || page.words < 30 {
            failures.push(format!(
                "{kind} ({name}): recall {:.3}, noise {:.3} of {} words",
                page.recall, page.noise, page.words
            ));
        }
    }
    #[expect(clippy::cast_precision_loss, reason = "a number of pages")]
    let mean = |of: fn(&Measurement) -> f64| {
        measurements.values().map(of).sum::<f64>() / measurements.len() as f64
    };
    let (recall, noise) = (mean(|page| page.recall), mean(|page| page.noise));
    println!("all {}: recall {recall:.3}, noise {noise:.3}", measurements.len());
    assert!(failures.is_empty(), "{}", failures.join("\n"));
    assert!(
        recall >= MEAN_RECALL && noise <= MEAN_NOISE,
        "all {}: recall {recall:.3}, noise {noise:.3}",
        measurements.len()
    );
}

struct Measurement {
    recall: f64,
    noise: f64,
    words: usize,
}

fn measure(path: &PathBuf, kept: &HashMap<String, String>) -> Measurement {
    let html = web::page::charset::decode(&fs::read(path).unwrap(), "text/html");
    let ours = count_words(&without_addresses(
        &web::page::markdown(&html, &Url::parse("https://example.com/").unwrap()).text,
    ));
    let (one, other) = (count_words(&kept["trafilatura"]), count_words(&kept["readability"]));
    let (mut wanted, mut found) = (0, 0);
    for (word, count) in &one {
        let both = *count.min(other.get(word).unwrap_or(&0));
        wanted += both;
        found += both.min(*ours.get(word).unwrap_or(&0));
    }
    let words: usize = ours.values().sum();
    let known: usize = ours
        .iter()
        .map(|(word, count)| *count.min(one.get(word).max(other.get(word)).unwrap_or(&0)))
        .sum();
    #[expect(clippy::cast_precision_loss, reason = "numbers of words")]
    let share =
        |part: usize, all: usize| if all == 0 { None } else { Some(part as f64 / all as f64) };
    Measurement {
        recall: share(found, wanted).unwrap_or(1.0),
        noise: share(words - known, words).unwrap_or(0.0),
        words,
    }
}

/// The number of occurrences of each word. In scripts without spaces, each letter counts as a word.
fn count_words(text: &str) -> HashMap<String, usize> {
    let mut words: HashMap<String, usize> = HashMap::new();
    let stands_alone = |c: char| matches!(c, '\u{e00}'..='\u{e7f}' | '\u{3040}'..='\u{30ff}' | '\u{3400}'..='\u{9fff}' | '\u{ac00}'..='\u{d7af}');
    for word in text
        .to_lowercase()
        .split(|c: char| !c.is_alphanumeric() && !stands_alone(c))
        .filter(|word| !word.is_empty())
    {
        if word.contains(stands_alone) {
            word.chars().for_each(|letter| *words.entry(letter.to_string()).or_default() += 1);
        } else {
            *words.entry(word.to_owned()).or_default() += 1;
        }
    }
    words
}

/// The text of Markdown without addresses of links and words for images, which the other programs
/// lack.
fn without_addresses(markdown: &str) -> String {
    let mut text = String::new();
    let mut rest = markdown;
    while let Some((before, after)) = rest.split_once("](http") {
        text.push_str(before);
        rest = after.split_once(')').map_or("", |(_, rest)| rest);
    }
    text.push_str(rest);
    let mut without_images = String::new();
    let mut rest = text.as_str();
    while let Some((before, after)) = rest.split_once("[image: ") {
        without_images.push_str(before);
        rest = after.split_once(']').map_or("", |(_, rest)| rest);
    }
    without_images.push_str(rest);
    without_images
}
