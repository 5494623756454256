#!/bin/sh
# Installs berth for one user: ./install.sh [--prefix DIR], and takes it away again: ./install.sh [--prefix DIR] --uninstall
#
# What lies in bin and share beside this script goes to bin and share below the prefix, ~/.local unless told otherwise. Each file is put
# beside its place and renamed, the program last. Configuration is never touched, and there is no need for root.
set -eu

# The machine that the program was built for, as `uname -m` names it.
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
    [ -n "$prefix" ] && [ "$prefix" != /.local ] || die "there is no HOME to install into: name a directory with --prefix DIR"
    case $prefix in
        /*) ;;
        *) prefix=$PWD/$prefix ;;
    esac
    prefix=${prefix%/}
    installed=$prefix/share/doc/berth/installed
    umask 022
    $action
}

install() {
    here=$(cd -- "$(dirname -- "$0")" && pwd)
    cd -- "$here"
    check_platform
    check_files
    # What an older version had, to take away what this one lacks. The list goes first: it names all that may be there from now on.
    old=
    if [ -f "$installed" ]; then old=$(cat -- "$installed"); fi
    new=$(files)
    mkdir -p -- "$prefix/share/doc/berth"
    printf '%s\n' "$new" "$old" | sort -u | put "$installed" 644
    printf '%s\n' "$new" | while IFS= read -r file; do
        mkdir -p -- "$prefix/$(dirname -- "$file")"
        case $file in
            bin/*) ;;
            *) put "$prefix/$file" 644 < "$file" ;;
        esac
    done
    put "$prefix/bin/berth" 755 < bin/berth
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

    echo "berth is installed: $prefix/bin/berth"
    case :${PATH:-}: in
        *":$prefix/bin:"*) ;;
        *) echo "$prefix/bin is not on your PATH. In your shell's profile, add: export PATH=\"$prefix/bin:\$PATH\"" ;;
    esac
}

uninstall() {
    [ -f "$installed" ] || die "berth was not installed into $prefix by this script: there is no $installed"
    while IFS= read -r file; do
        remove "$file"
    done < "$installed"
    rm -f -- "$installed"
    for folder in share/doc/berth share/doc share/man/man1 share/man share/bash-completion/completions share/bash-completion \
        share/zsh/site-functions share/zsh share/fish/vendor_completions.d share/fish share bin; do
        rmdir -- "$prefix/$folder" 2>/dev/null || true
    done
    echo "berth is gone from $prefix. Its configuration, data and cache are left: berth's folders in ~/.config, ~/.local/share and ~/.cache"
}

# What is to be installed, one path a line.
files() {
    sed -n -e 's/^[0-9a-f]*  bin\//bin\//p' -e 's/^[0-9a-f]*  share\//share\//p' SHA256SUMS
}

# The program knows best what it runs on; what it can't say itself is said for it.
check_platform() {
    system=$(uname -s) machine=$(uname -m)
    [ "$system" = Linux ] || die "berth runs on Linux; this is $system"
    [ "$machine" = "$arch" ] || die "this archive is for $arch; this machine is $machine"
    if [ "$arch" = x86_64 ] && [ -r /proc/cpuinfo ]; then
        flags=" $(grep -m 1 '^flags' /proc/cpuinfo) "
        for flag in cx16 popcnt pni sse4_1 sse4_2 ssse3; do
            case $flags in
                *" $flag "*) ;;
                *)
                    echo "this processor is older than x86-64-v2 (it lacks $flag): the first call will take seconds, to compile the tools for it"
                    break
                    ;;
            esac
        done
    fi
}

# Every file is the one that was packed, and there are no others to be taken for them.
check_files() {
    command -v sha256sum > /dev/null || die "sha256sum is needed to check the files (in coreutils or busybox)"
    [ -f SHA256SUMS ] || die "SHA256SUMS is missing beside this script: unpack the whole archive"
    told=$(sha256sum -c SHA256SUMS 2>&1) || die "the archive is damaged, nothing was installed:
$(printf '%s\n' "$told" | grep -v ': OK$')"
    ./bin/berth --version > /dev/null || die "the program does not start on this machine, nothing was installed"
}

# Standard input becomes a file of this mode, at once.
put() {
    [ ! -d "$1" ] || die "$1 is a directory: nothing can be put there"
    cat > "$1.new.$$" && chmod "$2" "$1.new.$$" && mv -f -- "$1.new.$$" "$1"
}

# A file that was installed, by its path below the prefix.
remove() {
    case $1 in
        '' | */../* | ../*) ;;
        bin/* | share/*) rm -f -- "$prefix/$1" ;;
    esac
}

die() {
    echo "error: $*" >&2
    exit 1
}

main "$@"
