#!/bin/sh
# Make up the secrets of a deployment: deploy/secrets.sh FOLDER [DATABASE_URL]
# What is there already stays. Without a URL it is that of the database in docker-compose.yml.
set -eu
umask 022
mkdir -p "$1"
# Nobody else comes in; the files themselves must be readable to the users of the containers.
chmod 700 "$1"
cd "$1"
for name in postgres_password automap_api_keys ray_token; do
    test -s "$name" || od -An -N24 -tx1 /dev/urandom | tr -d ' \n' > "$name"
done
test -s automap_database_url ||
    printf %s "${2:-postgresql://automap:$(cat postgres_password)@database/automap}" \
        > automap_database_url
