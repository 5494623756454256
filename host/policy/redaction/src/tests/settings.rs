//! Values in files of settings: whole lines, lists, blocks, and texts of several lines.

use super::*;

#[test]
fn whole_value_of_a_setting_is_redacted() {
    let redacted = |text| super::text(text, Keys::Settings).into_owned();
    assert_eq!(
        redacted("password: correct horse battery staple\nuser: me\n"),
        "password: [REDACTED:password corr…]\nuser: me\n"
    );
    assert_eq!(redacted("secret = mysecretvalue\n"), "secret = [REDACTED:secret mys…]\n");
    assert_eq!(redacted("PASSWORD=a,b;c&d(e)f\n"), "PASSWORD=[REDACTED:password …]\n");
}

#[test]
fn settings_are_found_over_lines_and_in_lists() {
    let secret = "Tr0ub4dor&3x";
    for around in [
        "password: |\n  @\nuser: me\n",
        "  password: >-\n    @\n  user: me\n",
        "password:\n  @\nuser: me\n",
        "   3\tpassword: |\n   4\t  @\n   5\tuser: me\n",
        "a.yml:3: password: |\na.yml-4-   @\na.yml-5- user: me\n",
        "secrets:\n- @\nuser: me\n",
        "password: [@]\nuser: me\n",
        "password: [\"@\", \"b\"]\nuser: me\n",
        "{\"token\":[\"@\"],\"user\":\"me\"}",
        "{\"token\": [\n  \"@\"\n ], \"user\": \"me\"}",
        "{\"password\":\n \"@\",\n \"user\": \"me\"}",
        "{\"pass\\u0077ord\": \"@\", \"user\": \"me\"}",
        "{\"\\u0070assword\": \"@\", \"user\": \"me\"}",
        "<password>\n  @\n</password><user>me</user>",
        "<add key=\"Password\" value=\"@\" user=\"me\"/>",
        "{\"name\": \"DB_PASSWORD\", \"value\": \"@\"}, user me",
        "- name: DB_PASSWORD\n  value: @\nuser: me",
        "  12\t- name: DB_PASSWORD\n  13\t  value: @\n  14\tuser: me",
        "secret = \"a long text\nof @\"\nuser = \"me\"\n",
        "secret = \"\"\"\n@\n\"\"\"\nuser = \"me\"\n",
        "PASS_PHRASE: @\nuser: me\n",
        "PASSWORD=[REDACTED:anything@\nuser=me\n",
    ] {
        let redacted = check_redacted(&around.replace('@', secret), secret, Keys::Settings);
        assert!(redacted.contains("user") && redacted.contains("me"), "{redacted}");
    }
    for text in [
        "password:\n  least: 12\n  most: 100\n",
        "secrets:\n  - DB_PASSWORD\n  - NPM_TOKEN\n",
        "secrets: [DB_PASSWORD, NPM_TOKEN]\n",
        "token: []\nnext: [1234567890]\n",
        "password: [REDACTED]\npassword: <redacted>\n",
        "password:\nusername_of_the_owner\n",
        "\"password\": {\n  \"type\": \"string\"\n}",
        "password: ''\nnext: 'something else'\n",
    ] {
        assert_eq!(super::text(text, Keys::Settings), text);
    }
}

#[test]
fn mark_inside_a_secret_does_not_hide_the_rest() {
    let secret = "Tr0ub4dor&3x";
    let mark = "[REDACTED:x …]";
    for around in [
        "secrets:\n- @\n- #\n- @\nuser: me\n",
        "secrets:\n- #\n- @\nuser: me\n",
        "password: |\n  @\n  #\n  @\nuser: me\n",
        "   3\tpassword: |\n   4\t  #\n   5\t  @\n   6\tuser: me\n",
        "secret = \"@ # @\"\nuser = \"me\"\n",
        "secret = \"#@\"\nuser = \"me\"\n",
        "secret = \"@\n#\n@\"\nuser = \"me\"\n",
        "secret = \"\"\"\n#\n@\n\"\"\"\nuser = \"me\"\n",
        "token: [\"#\", \"@\"]\nuser: me\n",
        "token: @ #\nuser: me\n",
    ] {
        let redacted =
            check_redacted(&around.replace('@', secret).replace('#', mark), secret, Keys::Settings);
        assert!(
            redacted.contains(mark) && redacted.contains("user") && redacted.contains("me"),
            "{redacted}"
        );
    }
    let whole = pem("OPENSSH PRIVATE KEY");
    let mut lines: Vec<String> = whole.lines().map(str::to_owned).collect();
    lines[1].replace_range(..19, "b3BlbnNzaC1rZXktdjE");
    let headless = lines[1..6].to_vec();
    for (mut lines, at) in [(lines, 4), (headless, 3)] {
        lines.insert(at, mark.to_owned());
        for line in lines.iter().filter(|line| *line != mark && !line.contains("PRIVATE")) {
            check_redacted(&lines.join("\n"), line, Keys::Unknown);
        }
        lines[at].push_str(&random_text(ALNUM, 44));
        check_redacted(&lines.join("\n"), &lines[at + 1], Keys::Unknown);
    }
    assert_eq!(
        super::json(json!({ "password": format!("{mark}{secret}") }), Keys::Text)["password"],
        "[REDACTED:password …]"
    );
}

#[test]
fn each_entry_and_line_is_checked_by_itself() {
    let secret = "Tr0ub4dor&3x";
    for around in [
        "secrets:\n- ${FIRST}\n- @\nuser: me\n",
        "secrets:\n- changeme\n\n# the next\n- '@'\nuser: me\n",
        "access_token: [\"${A}\", \"@\"]\nuser: me\n",
        "access_token: [\"a]b\", \"@\", ${B}]\nuser: me\n",
        "{\\\"token\\\": [\\\"${A}\\\", \\\"@\\\"], \\\"user\\\": \\\"me\\\"}",
        "client_secret: >\n  example follows\n  @\nuser: me\n",
        "secret = \"\"\"\n  example follows\n  @\n\"\"\"\nuser = \"me\"\n",
        "passwords: [\"@\"]\nuser: me\n",
        "api_keys:\n  - @\nuser: me\n",
        "tokens = ['@']\nuser = 'me'\n",
    ] {
        let redacted = check_redacted(&around.replace('@', secret), secret, Keys::Settings);
        assert!(redacted.contains("user") && redacted.contains("me"), "{redacted}");
    }
    let redacted = |text| super::text(text, Keys::Settings).into_owned();
    assert_eq!(
        redacted("password: [\"hunter2aaaa\",\"hunter3bbbb\"]\n"),
        "password: [\"[REDACTED:password hu…]\"]\n"
    );
    assert_eq!(
        redacted("  10\tpassword = \"\"\"\n  11\thunterX12345\n  12\t\"\"\"\n  13\tnext = 1\n"),
        "  10\tpassword = \"\"\"\n  11\t[REDACTED:password hun…]\n  12\t\"\"\"\n  13\tnext = 1\n"
    );
    for text in [
        "tokens: [the, function, \"returns\"]\n",
        "passwords: 12345678\n",
        "{\"tokens\": [15496, 99512]}",
        "passwords:\n  least: 123456\n",
    ] {
        assert_eq!(super::text(text, Keys::Settings), text);
    }
    let value = json!({ "passwords": ["hunter22"], "tokens": ["function", "a1b2c3d4e5f6"], "secret": ["${A}", "hunter22"] });
    assert_eq!(
        super::json(value, Keys::Text),
        json!({ "passwords": ["[REDACTED:password hu…]"], "tokens": ["function", "[REDACTED:token a1b…]"], "secret": ["${A}", "[REDACTED:secret hu…]"] })
    );
}

#[test]
fn nested_blocks_are_examined_a_bounded_number_of_times() {
    let stair: String = (0..90).map(|depth| " ".repeat(depth) + "changeme.pwd: |\n").collect();
    let text = stair.repeat(16);
    EXAMINED.set(0);
    assert_eq!(super::super::text(&text, Keys::Settings), text);
    let times = EXAMINED.get() / text.len();
    assert!(times <= 40, "each byte was examined {times} times");
}
