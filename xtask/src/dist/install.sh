#!/bin/sh
# Installs toolhold for one user: ./install.sh [--prefix DIR]
# Uninstalls it: ./install.sh [--prefix DIR] --uninstall
#
# Copies bin, lib and share, which are beside this script, to the prefix. The default prefix is ~/.local. Each file is
# written under another name and renamed, the program last. The script never changes the configuration, and doesn't
# need root.
set -eu

# The machine type that the program was built for, as printed by `uname -m`.
arch=@ARCH@

main() {
    prefix=${HOME:-}/.local
    action=install
    while [ $# -gt 0 ]; do
        case $1 in
            --prefix) [ $# -gt 1 ] || die "--prefix needs a directory"; prefix=$2; shift ;;
            --prefix=*) prefix=${1#--prefix=} ;;
            --uninstall) action=uninstall ;;
            -h | --help) echo "usage: ./install.sh [--prefix DIR] [--uninstall]   (DIR is ~/.local unless given)"; exit ;;
            *) die "there is no option $1; see ./install.sh --help" ;;
        esac
        shift
    done
    [ -n "$prefix" ] && [ "$prefix" != /.local ] || die "HOME is missing: name a directory with --prefix DIR"
    case $prefix in
        /*) ;;
        *) prefix=$PWD/$prefix ;;
    esac
    prefix=${prefix%/}
    installed=$prefix/share/doc/toolhold/installed
    umask 022
    $action
}

install() {
    here=$(cd -- "$(dirname -- "$0")" && pwd)
    cd -- "$here"
    check_platform
    check_files
    # Files that only the older version has are removed at the end. The list of both versions' files is written first,
    # so that --uninstall removes all of them even after an interruption.
    old=
    if [ -f "$installed" ]; then old=$(cat -- "$installed"); fi
    new=$(files)
    mkdir -p -- "$prefix/share/doc/toolhold"
    printf '%s\n' "$new" "$old" | sort -u | put "$installed" 644
    printf '%s\n' "$new" | while IFS= read -r file; do
        mkdir -p -- "$prefix/$(dirname -- "$file")"
        case $file in
            bin/*) ;;
            *) put "$prefix/$file" 644 < "$file" ;;
        esac
    done
    put "$prefix/bin/toolhold" 755 < bin/toolhold
    printf '%s\n' "$old" | while IFS= read -r file; do
        case "
$new
" in
            *"
$file
"*) ;;
            *) remove "$file" ;;
        esac
    done
    printf '%s\n' "$new" | put "$installed" 644

    echo "toolhold is installed: $prefix/bin/toolhold"
    case :${PATH:-}: in
        *":$prefix/bin:"*) ;;
        *) echo "$prefix/bin is not on your PATH. In your shell's profile, add: export PATH=\"$prefix/bin:\$PATH\"" ;;
    esac
    echo "Next, run: toolhold init"
}

uninstall() {
    [ -f "$installed" ] || die "toolhold was not installed into $prefix by this script: there is no $installed"
    contract=$(sed -n -e 's|^\(share/doc/toolhold/wit/.*\)/[^/]*$|\1|p' "$installed" | sort -ru)
    while IFS= read -r file; do
        remove "$file"
    done < "$installed"
    rm -f -- "$installed"
    printf '%s\n' "$contract" | while IFS= read -r folder; do
        case $folder in
            '' | */../* | */..) ;;
            *) rmdir -- "$prefix/$folder" 2>/dev/null || true ;;
        esac
    done
    for folder in share/doc/toolhold/wit/deps share/doc/toolhold/wit \
        share/doc/toolhold share/doc share/man/man1 share/man share/bash-completion/completions share/bash-completion \
        share/zsh/site-functions share/zsh share/fish/vendor_completions.d share/fish share lib/toolhold/parts lib/toolhold lib bin; do
        rmdir -- "$prefix/$folder" 2>/dev/null || true
    done
    echo "toolhold is removed from $prefix. Its configuration, data and cache are kept in toolhold's folders in ~/.config, ~/.local/share and ~/.cache"
}

# The files to install, one path a line.
files() {
    sed -n -e 's/^[0-9a-f]*  bin\//bin\//p' -e 's/^[0-9a-f]*  lib\//lib\//p' -e 's/^[0-9a-f]*  share\//share\//p' SHA256SUMS
}

# Checks what the program can't report itself, because it would not start.
check_platform() {
    system=$(uname -s) machine=$(uname -m)
    [ "$system" = Linux ] || die "toolhold runs on Linux; this is $system"
    [ "$machine" = "$arch" ] || die "this archive is for $arch; this machine is $machine"
    if [ "$arch" = x86_64 ] && [ -r /proc/cpuinfo ]; then
        flags=" $(grep -m 1 '^flags' /proc/cpuinfo) "
        for flag in cx16 popcnt pni sse4_1 sse4_2 ssse3; do
            case $flags in
                *" $flag "*) ;;
                *)
                    echo "this processor is older than x86-64-v2 (it lacks $flag): the first call takes seconds, because it compiles the tools"
                    break
                    ;;
            esac
        done
    fi
}

# Checks that every packed file is there and unchanged, and that the program starts.
check_files() {
    command -v sha256sum > /dev/null || die "sha256sum is needed to check the files (in coreutils or busybox)"
    [ -f SHA256SUMS ] || die "SHA256SUMS is missing beside this script: unpack the whole archive"
    output=$(sha256sum -c SHA256SUMS 2>&1) || die "the archive is damaged; nothing was installed:
$(printf '%s\n' "$output" | grep -v ': OK$')"
    ./bin/toolhold --version > /dev/null || die "the program does not start on this machine; nothing was installed"
}

# Writes standard input to the file $1 with the mode $2, in one step.
put() {
    [ ! -d "$1" ] || die "$1 is a directory: can't write a file there; move it away"
    cat > "$1.new.$$" && chmod "$2" "$1.new.$$" && mv -f -- "$1.new.$$" "$1"
}

# Removes an installed file, by its path below the prefix.
remove() {
    case $1 in
        '' | */../* | ../*) ;;
        bin/* | lib/* | share/*) rm -f -- "$prefix/$1" ;;
    esac
}

die() {
    echo "error: $*" >&2
    exit 1
}

main "$@"
