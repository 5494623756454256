//! What a terminal shows, as an SVG.

use std::fmt::Write;

/// Pixels of a character and of a line.
const CELL: (f32, f32) = (8.4, 18.0);

/// The sixteen colours, as a common theme has them.
const COLOURS: [&str; 16] = [
    "#2e3440", "#d9616b", "#a3be8c", "#e5c07b", "#6ea1d4", "#c792c9", "#7fc4d0", "#d8dee9",
    "#4c566a", "#d9616b", "#a3be8c", "#e5c07b", "#6ea1d4", "#c792c9", "#7fc4d0", "#eceff4",
];

/// A text of one look in a line.
#[derive(PartialEq)]
struct Run {
    column: u16,
    text: String,
    look: (String, bool, bool, bool),
}

/// A moment: its lines.
pub(super) struct Frame(Vec<Vec<Run>>);

/// What is on a screen. What differs each time, the folder and the clock, is as it is elsewhere.
pub(super) fn frame(screen: &vt100::Screen, folder: &str) -> Frame {
    let (lines, columns) = screen.size();
    let (lines, columns) = (lines.get(), columns.get());
    let line = |line: u16| {
        let mut runs: Vec<Run> = Vec::new();
        for column in 0..columns {
            let Some(cell) = screen.cell(line, column).filter(|it| !it.is_wide_continuation())
            else {
                continue;
            };
            let colour = match cell.fgcolor() {
                vt100::Color::Idx(index) => COLOURS[usize::from(index) % 16],
                _ => COLOURS[7],
            };
            let look = (colour.to_owned(), cell.bold(), cell.dim(), cell.inverse());
            let text = if cell.has_contents() { cell.contents() } else { " " };
            match runs.last_mut() {
                Some(last) if last.look == look => last.text.push_str(text),
                _ => runs.push(Run { column, text: text.to_owned(), look }),
            }
        }
        for run in &mut runs {
            run.text = run.text.replace(folder, "/home/u/shop");
            if let Some(at) = run.text.find("time 0:")
                && let Some(clock) = run.text.get(at..at + 9)
            {
                run.text = run.text.replace(clock, "time 0:04");
            }
            run.text.truncate(run.text.trim_end().len());
        }
        runs.retain(|run| !run.text.is_empty());
        runs
    };
    Frame((0..lines).map(line).collect())
}

/// The moments, one below the other.
pub(super) fn svg(frames: &[Frame]) -> String {
    let lines: usize = frames.iter().map(|frame| frame.0.len() + 2).sum();
    let (width, height) = (80.0 * CELL.0 + 32.0, lines as f32 * CELL.1 + 16.0);
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" \
         font-family=\"ui-monospace,Menlo,Consolas,'DejaVu Sans Mono',monospace\" font-size=\"14\">\n\
         <title>A task in toolhold chat: the agent asks before it edits, then says what it did</title>\n"
    );
    let mut top = 16.0;
    for Frame(lines) in frames {
        let height = (lines.len() as f32 + 1.0) * CELL.1;
        let _ = writeln!(
            svg,
            "<rect x=\"4\" y=\"{}\" width=\"{}\" height=\"{height}\" rx=\"8\" fill=\"#1f232b\"/>",
            top - 8.0,
            width - 8.0
        );
        for (at, line) in lines.iter().enumerate() {
            let y = top + (at as f32 + 1.0) * CELL.1;
            for run in line {
                put(&mut svg, run, y);
            }
        }
        top += height + CELL.1;
    }
    svg.push_str("</svg>\n");
    svg
}

fn put(svg: &mut String, run: &Run, y: f32) {
    let (colour, is_bold, is_dim, is_inverse) = &run.look;
    let x = 16.0 + f32::from(run.column) * CELL.0;
    let mut fill = colour.as_str();
    if *is_inverse {
        let width = run.text.chars().count() as f32 * CELL.0;
        let (top, height) = (y - 13.5, CELL.1);
        let _ = writeln!(
            svg,
            "<rect x=\"{x:.1}\" y=\"{top:.1}\" width=\"{width:.1}\" height=\"{height}\" fill=\"{fill}\"/>"
        );
        fill = COLOURS[0];
    }
    let bold = if *is_bold { " font-weight=\"bold\"" } else { "" };
    let dim = if *is_dim { " opacity=\"0.6\"" } else { "" };
    let text = run.text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
    let _ = writeln!(
        svg,
        "<text x=\"{x:.1}\" y=\"{y:.1}\" fill=\"{fill}\"{bold}{dim} xml:space=\"preserve\">{text}</text>"
    );
}
