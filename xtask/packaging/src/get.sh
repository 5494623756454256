#!/bin/sh
# Downloads toolhold @VERSION@, checks it, and installs it for one user:
#
#   install.sh [--key KEY | --no-signature] [ARCHIVE] [--prefix DIR] [--uninstall]
#
# ARCHIVE is the URL or the file of an archive, with SHA256SUMS and SHA256SUMS.minisig beside it. By default, it is the
# archive of this machine in the release that this script belongs to. Nothing is unpacked before its checksum and the
# signature of the checksums are checked. Then the archive's own install.sh runs, with --prefix and --uninstall. A
# download that was cut off goes on where it ended, also the next time. The script doesn't need root.
set -eu

release=@URL@
key=@KEY@

main() {
    from=
    signature=check
    count=$#
    # Each argument is taken from the front; those for the archive's script are put at the end.
    while [ "$count" -gt 0 ]; do
        case $1 in
            --key) [ "$count" -gt 1 ] || die "--key needs a public key"; key=$2; shift; count=$((count - 1)) ;;
            --no-signature) signature=ignore ;;
            --prefix) [ "$count" -gt 1 ] || die "--prefix needs a directory"; set -- "$@" "$1" "$2"; shift; count=$((count - 1)) ;;
            --prefix=* | --uninstall) set -- "$@" "$1" ;;
            -h | --help) usage; exit ;;
            -*) die "there is no option $1; see --help" ;;
            *) [ -z "$from" ] || die "there is more than one archive: $from and $1"; from=$1 ;;
        esac
        shift
        count=$((count - 1))
    done
    machine=$(uname -m)
    [ -n "$from" ] || from=$release/toolhold-@VERSION@-$machine-linux.tar.gz
    name=${from##*/}
    folder=${name%.tar.gz}
    case $name in
        *[!A-Za-z0-9._+-]*) die "the name of the archive has unexpected characters: $from" ;;
        toolhold-*-"$machine"-linux.tar.gz) ;;
        *) die "the archive has to be named toolhold-VERSION-$machine-linux.tar.gz: $from" ;;
    esac
    umask 077
    find_tools
    find_files
    check_signature
    check_checksum
    unpack
    "$work/$folder/install.sh" "$@"
    if [ -n "$downloads" ]; then rm -rf -- "$downloads"; fi
}

usage() {
    echo "usage: install.sh [--key KEY | --no-signature] [ARCHIVE] [--prefix DIR] [--uninstall]"
    echo "ARCHIVE is a URL or a file; DIR is ~/.local unless given"
}

find_tools() {
    for tool in awk gzip mktemp sha256sum tar; do
        command -v "$tool" > /dev/null || die "$tool is needed"
    done
    if [ "$signature" = ignore ]; then
        echo "warning: the signature is not checked (--no-signature)" >&2
    elif [ -z "$key" ]; then
        die "this script has no public key: name one with --key KEY, or leave out the check with --no-signature"
    elif command -v minisign > /dev/null; then
        signature=minisign
    elif command -v openssl > /dev/null && openssl pkeyutl -help 2>&1 | grep -q -e -rawin; then
        signature=openssl
    else
        die "the signature can't be checked: install minisign or OpenSSL 3, or leave out the check with --no-signature"
    fi
}

# Sets the folder of the archive, of its checksums and of their signature. What is at a URL is downloaded to a folder
# that stays until everything is installed.
find_files() {
    [ -n "${HOME:-}" ] || die "HOME is missing: there is no place for the files"
    cache=${XDG_CACHE_HOME:-$HOME/.cache}/toolhold-install
    mkdir -p -- "$cache"
    work=$(mktemp -d "$cache/work-XXXXXX")
    trap 'rm -rf -- "$work"; rmdir -- "$cache" 2> /dev/null || true' EXIT
    trap 'exit 130' INT HUP TERM
    case $from in
        https://* | http://127.0.0.1:*/* | http://localhost:*/*) ;;
        *://*) die "the URL has to begin with https://: $from" ;;
        *)
            downloads=
            source=$(cd -- "$(dirname -- "$from")" && pwd)
            return
            ;;
    esac
    downloads=$cache/$folder
    source=$downloads
    mkdir -p -- "$downloads"
    rm -f -- "$source/SHA256SUMS" "$source/SHA256SUMS.minisig"
    download "${from%/*}/SHA256SUMS" "$source/SHA256SUMS"
    [ "$signature" = ignore ] || download "${from%/*}/SHA256SUMS.minisig" "$source/SHA256SUMS.minisig"
}

# Downloads the URL $1 to the file $2. Of a file that is there in part, the rest is downloaded.
download() {
    for try in 1 2 3; do
        fetch "$1" "$2" && return
        # The server's answer is an error, or it can't send a part: the next try begins at the start.
        case $? in
            8 | 22 | 33) rm -f -- "$2" ;;
        esac
        echo "the download of $1 failed (try $try of 3)" >&2
    done
    die "can't download $1; nothing was installed. The next run goes on where this one ended"
}

fetch() {
    if command -v curl > /dev/null; then
        curl --fail --location --silent --show-error --proto '=https,http' --proto-redir '=https' \
            --continue-at - --output "$2" "$1"
    elif command -v wget > /dev/null; then
        wget -q -c -O "$2" "$1"
    else
        die "curl or wget is needed"
    fi
}

check_signature() {
    case $signature in
        minisign) minisign -Vq -P "$key" -m "$source/SHA256SUMS" ;;
        openssl) check_with_openssl ;;
        ignore) true ;;
    esac > /dev/null 2>&1 || die "the signature of SHA256SUMS is wrong or missing; nothing was installed"
}

# A signature of minisign is one of Ed25519 over the BLAKE2b of the file. Before it there are 2 bytes with the algorithm
# and 8 with the key's number, as before the 32 bytes of the public key. OpenSSL takes a key with the prefix of its type.
check_with_openssl() {
    sed -n 2p "$source/SHA256SUMS.minisig" | openssl base64 -d -A > "$work/signed" || return
    [ "$(head -c 2 "$work/signed")" = ED ] || return
    tail -c 64 "$work/signed" > "$work/signature"
    printf '%s' "$key" | openssl base64 -d -A > "$work/public" || return
    { printf '\060\052\060\005\006\003\053\145\160\003\041\000'; tail -c 32 "$work/public"; } > "$work/key"
    openssl dgst -blake2b512 -binary "$source/SHA256SUMS" > "$work/hash" || return
    openssl pkeyutl -verify -pubin -keyform DER -inkey "$work/key" -rawin -in "$work/hash" -sigfile "$work/signature"
}

check_checksum() {
    archive=$source/$name
    sum=$(awk -v name="$name" '$0 == $1 "  " name { print $1 }' "$source/SHA256SUMS")
    case $sum in
        '' | *[!0-9a-f]*) die "SHA256SUMS has no checksum of $name, or several; nothing was installed" ;;
    esac
    if [ -n "$downloads" ] && ! is_whole; then
        is_continued=$([ ! -f "$archive" ] || echo yes)
        download "$from" "$archive"
        # The part that an earlier run left may be of another file.
        if [ -n "$is_continued" ] && ! is_whole; then
            rm -f -- "$archive"
            download "$from" "$archive"
        fi
    fi
    is_whole || die "the checksum of $name is wrong; nothing was installed"
}

is_whole() {
    [ -f "$archive" ] && printf '%s  %s\n' "$sum" "$archive" | sha256sum -c > /dev/null 2>&1
}

# Unpacks the archive, if it has only files and folders below the folder of its name.
unpack() {
    names=$(tar -tzf "$archive") || die "$name can't be read; nothing was installed"
    printf '%s\n' "$names" | while IFS= read -r member; do
        case $member in
            */../* | */..) die "$name has an unexpected member: $member" ;;
            "$folder"/*) ;;
            *) die "$name has an unexpected member: $member" ;;
        esac
    done
    if tar -tvzf "$archive" | grep -q -e '^[^-d]' -e ' -> ' -e ' link to '; then
        die "$name has a member that is neither a file nor a folder"
    fi
    tar -xzf "$archive" -C "$work"
}

die() {
    echo "error: $*" >&2
    exit 1
}

main "$@"
