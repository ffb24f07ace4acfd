"""What a page draws: one clock, a row of lanes a fabric, the fabric as it is then; and the pictures
that stand still.

    records.py   what the clock shows, out of the run's records: nothing is worked out in the page
    pictures.py  what the still pictures show
    places.py    where nodes stand, and outline.py: where they do in a picture of some of them
    lights.py    light paths
    logged.py    your run beside these: what a log tells
    clock.html   the markup of the clock, in pages that extend moving.html
    clock.css    its colours: dark, light, printed, narrow
    *.js         draw and move it all, with D3: one script in the page, whose files html.py names
    said.js      what each begins with: the records, and words for what they hold
    picture.js   what the pictures share; amounts.js, front.js, times.js and cabled.js draw them
    still.js     a page of such pictures alone, that of a grid
    cells.js     with choices.js alone: the page of a store, whose cells have no clock
    live.js      beside the clock's where the page follows a run that is under way
    server.py    the process that serves that page
    d3.min.js    D3 7.9.2 as npm has it (package `d3`, dist/d3.min.js); ISC licence, d3-licence.txt

D3, for one library gives axes, scales, zoom and curves for the lanes and for the fabric alike, as
SVG, which prints and is read aloud; uPlot draws on a canvas and has no graphs, Cytoscape has no
time axis, ECharts is four times as large.
"""
